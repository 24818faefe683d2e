"""The entry points of a CALL: the Python session, table functions and the JVM.

Only this room and `engine` import pyspark.
"""
