"""Speed and memory of attention, the reports of conversions, and the studies that measure what papers claim."""
