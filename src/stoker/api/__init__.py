"""Offers what code and notebooks call: stoker.install, uninstall and report, %load_ext stoker."""
