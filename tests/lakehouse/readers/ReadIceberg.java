import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.struct;
import static org.apache.spark.sql.functions.to_json;

import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;

/**
 * Reads an Iceberg table by Spark and Iceberg's own runtime: the location of its metadata, then the
 * columns, by name. Prints a JSON document per row.
 */
public final class ReadIceberg {
    private static final String CATALOG = "spark.sql.catalog.default_iceberg";

    private ReadIceberg() {}

    public static void main(String[] arguments) throws Exception {
        Column[] columns =
                Arrays.stream(arguments).skip(1).map(name -> col(name)).toArray(Column[]::new);
        Map<String, String> form =
                Map.of(
                        "ignoreNullFields", "false",
                        "timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX");
        try (SparkSession spark =
                SparkSession.builder()
                        .master("local[1]")
                        .config("spark.ui.enabled", "false")
                        .config("spark.driver.host", "127.0.0.1")
                        .config("spark.driver.bindAddress", "127.0.0.1")
                        .config("spark.sql.session.timeZone", "UTC")
                        // Iceberg's own default is Hive's catalog, which takes Hive's jars; a table
                        // that is named by its location is in no catalog.
                        .config(CATALOG, "org.apache.iceberg.spark.SparkCatalog")
                        .config(CATALOG + ".type", "hadoop")
                        .config(CATALOG + ".warehouse", arguments[0])
                        .getOrCreate()) {
            spark.read()
                    .format("iceberg")
                    .load(arguments[0])
                    .select(to_json(struct(columns), form))
                    .as(Encoders.STRING())
                    .collectAsList()
                    .forEach(System.out::println);
        }
    }
}
