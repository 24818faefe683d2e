"""One module for each kind of store beside local disks and S3, and the time limit that they share."""
