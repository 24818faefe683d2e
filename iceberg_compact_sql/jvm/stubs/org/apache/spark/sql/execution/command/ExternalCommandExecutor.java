package org.apache.spark.sql.execution.command;

import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.ExternalCommandRunner;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

/**
 * Stands in for Spark's class of this name while javac runs, which cannot read all of its Scala signatures. It is not
 * in the jar: at run time the superclass is Spark's own.
 */
public class ExternalCommandExecutor {
  public ExternalCommandExecutor(ExternalCommandRunner runner, String command, Map<String, String> options) {}

  @SuppressWarnings("rawtypes")
  public Seq output() {
    return null;
  }

  @SuppressWarnings("rawtypes")
  public Seq run(SparkSession session) throws AnalysisException {
    return null;
  }
}
