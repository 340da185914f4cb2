// Takes all partitions of a topic by hand, asks where they begin and end, and reads until it has n records (or the time is up).
// For clients 2.0 and later. The last line on standard output is JSON with "final": true.

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

public final class AssignedReader {
    // Arguments: bootstrap topic records seconds records_file, then client properties as name=value.
    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[2]);
        long deadline = System.nanoTime() + Long.parseLong(arguments[3]) * 1_000_000_000L;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (int at = 5; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        long read = 0;
        String borders;
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(arguments[4]), StandardCharsets.UTF_8);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> places = consumer.partitionsFor(arguments[1]).stream()
                .map(info -> new TopicPartition(info.topic(), info.partition())).collect(Collectors.toList());
            consumer.assign(places);
            borders = "\"beginning\": " + shown(consumer.beginningOffsets(places))
                + ", \"end\": " + shown(consumer.endOffsets(places));
            consumer.seekToBeginning(places);
            while (read < wanted && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    read++;
                    out.write(record.partition() + " " + record.offset() + " " + record.value() + "\n");
                }
            }
        }
        System.out.println("{\"records\": " + read + ", " + borders + ", \"final\": true}");
        System.exit(read >= wanted ? 0 : 1);
    }

    private static String shown(Map<TopicPartition, Long> offsets) {
        TreeMap<Integer, Long> sorted = new TreeMap<>();
        offsets.forEach((place, offset) -> sorted.put(place.partition(), offset));
        return sorted.entrySet().stream().map(one -> "\"" + one.getKey() + "\": " + one.getValue())
            .collect(Collectors.joining(", ", "{", "}"));
    }
}
