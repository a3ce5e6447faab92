"""Many tables brought further by one process, in one Spark session."""
