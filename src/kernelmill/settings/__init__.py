"""What commands can be told: settings classes, the config file, the environment, argument parsers.

In: flags, TOML files, `.env` and the environment. Out: one frozen settings object a command. Secrets are read here and never saved.
"""
