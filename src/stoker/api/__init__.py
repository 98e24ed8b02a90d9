"""What code and notebooks call: stoker.install, stoker.uninstall, stoker.report, %load_ext stoker."""
