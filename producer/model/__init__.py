"""Types that every layer shares: errors, configuration, records, results and the interfaces of sinks and channels."""
