"""The audits, one file each; `ALL` is every one of them in order of its number."""
