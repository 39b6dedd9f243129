"""pymq beside Apache RocketMQ: real processes, one machine, one run. `README.md` says how and why it is fair."""
