"""Text for people: plurals, rules of names, printable names, hints for missing packages and for migration."""
