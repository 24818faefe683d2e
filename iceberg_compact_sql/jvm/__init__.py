"""The JVM door: sources of the small jar, and how it is built."""
