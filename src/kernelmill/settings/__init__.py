"""Settings of commands: classes, config files, environment variables and argument parsers.

In: flags, TOML files, `.env` and the environment. Out: one frozen settings object for a command. Secrets are
read here and never saved.

    base, fields            the shared settings, and one class for each stage
    options                 how a tool declares its settings, without pydantic
    commands                the parser of a command, made from its settings class; run a tool
    config                  load settings from flags, environment, `.env`, file and defaults
    environment, providers  environment variables and secrets; model providers
    arguments               the parser class: errors are one line, and a config file for every command
    registry                built-in entries and plug-ins by name; the settings class of each stage
"""
