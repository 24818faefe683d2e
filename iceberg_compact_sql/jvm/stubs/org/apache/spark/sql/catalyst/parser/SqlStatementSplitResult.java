package org.apache.spark.sql.catalyst.parser;

/** Stands in for a class of Spark 4.3 while javac runs against an older one. It is not in the jar. */
public class SqlStatementSplitResult {}
