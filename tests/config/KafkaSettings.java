// Prints what Kafka knows about settings, as tab-separated lines, for test_against_kafka.py.
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collection;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaSettings {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "settings" -> settings();
            case "properties" -> properties();
            case "values" -> values();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    static void settings() {
        print("topic", LogConfig.configKeys().values());
        print("group", GroupConfig.CONFIG_DEF.configKeys().values());
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, synonym) -> synonym.ifPresent(broker ->
            System.out.println(String.join("\t", "group-synonym", name, broker))));
        print("broker", AbstractKafkaConfig.CONFIG_DEF.configKeys().values());
        for (ConfigDef.ConfigKey key : DynamicConfig.Broker.configKeys().values())
            if (!AbstractKafkaConfig.CONFIG_DEF.configKeys().containsKey(key.name))
                System.out.println(row("dynamic-only", key));
        DynamicBrokerConfig.dynamicConfigUpdateModes().forEach((name, mode) ->
            System.out.println(String.join("\t", "update", name, mode)));
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) ->
            synonyms.forEach(synonym -> System.out.println(String.join("\t", "synonym", name,
                synonym.name(), synonym.converter().apply("1")))));
    }

    static void print(String table, Collection<ConfigDef.ConfigKey> keys) {
        for (ConfigDef.ConfigKey key : keys) System.out.println(row(table, key));
    }

    static String row(String table, ConfigDef.ConfigKey key) {
        String fallback = !key.hasDefault() ? "<required>" : key.defaultValue == null ? "<null>"
            : ConfigDef.convertToString(key.defaultValue, key.type);
        String valid = key.validator == null ? "" : key.validator.toString();
        return String.join("\t", table, key.name, key.type.name(), fallback, valid,
            key.importance.name(), String.valueOf(key.internalConfig));
    }

    // Standard input: properties files, one in base64 per line. Prints the names and values of
    // each, in base64, and an empty line after each file.
    static void properties() throws Exception {
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split("\n")) {
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(line)));
            for (var entry : new TreeMap<Object, Object>(properties).entrySet())
                System.out.println(base64((String) entry.getKey()) + "\t"
                    + base64((String) entry.getValue()));
            System.out.println();
        }
    }

    // Standard input: name, tab, value. Prints the parsed topic value as text, or that it is refused.
    static void values() throws Exception {
        ConfigDef definition = LogConfig.configDefCopy();
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split("\n")) {
            String[] parts = line.split("\t", -1);
            String name = parts[0];
            try {
                Object value = definition.parse(java.util.Map.of(name, parts[1])).get(name);
                String text = ConfigDef.convertToString(value, definition.configKeys().get(name).type);
                System.out.println("ok\t" + text);
            } catch (ConfigException refused) {
                System.out.println("refused\t");
            }
        }
    }
}
