from kernelmill.cli import main

raise SystemExit(main())
