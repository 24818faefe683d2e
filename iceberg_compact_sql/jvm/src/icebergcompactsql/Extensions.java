package icebergcompactsql;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import scala.Function2;
import scala.runtime.BoxedUnit;

/**
 * The way into a session: found by ServiceLoader when the jar is on the class path, or named in
 * {@code spark.sql.extensions}. Every session gets a parser of its own around the one it had.
 */
public final class Extensions implements SparkSessionExtensionsProvider {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectParser((Function2<SparkSession, ParserInterface, ParserInterface>) CallParser::new);
    return BoxedUnit.UNIT;
  }
}
