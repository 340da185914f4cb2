// Prints the defaults of a broker's own settings and of its topics', as the classes of that broker have them, by
// reflection: kafka.log.LogConfig and kafka.server.KafkaConfig of 0.10. The only line on standard output is JSON.

import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

public final class BrokerDefaults {
    // No arguments; the class path is that of the broker.
    public static void main(String[] arguments) throws Exception {
        Map<?, ?> needed = Collections.singletonMap("zookeeper.connect", "nowhere");
        System.out.println("{\"topics\": " + shown("kafka.log.LogConfig", Collections.emptyMap())
            + ", \"brokers\": " + shown("kafka.server.KafkaConfig", needed) + "}");
    }

    private static String shown(String name, Map<?, ?> given) throws Exception {
        Object settings = Class.forName(name).getConstructor(Map.class).newInstance(given);
        Map<?, ?> values = (Map<?, ?>) settings.getClass().getMethod("values").invoke(settings);
        Map<String, Object> sorted = new TreeMap<>();
        values.forEach((setting, value) -> sorted.put((String) setting, value));
        return sorted.entrySet().stream().map(one -> "\"" + one.getKey() + "\": " + text(one.getValue()))
            .collect(Collectors.joining(", ", "{", "}"));
    }

    private static String text(Object value) {
        if (value == null) {
            return "null";
        }
        String plain = value instanceof Collection
            ? ((Collection<?>) value).stream().map(String::valueOf).collect(Collectors.joining(","))
            : String.valueOf(value);
        return "\"" + plain.replace("\\", "\\\\").replace("\"", "'") + "\"";
    }
}
