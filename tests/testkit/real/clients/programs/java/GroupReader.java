// Subscribes as a member of a group, reads until it has n records (or the time is up), commits, and says where it stands.
// For clients 0.10 to 3.x. The last line on standard output is JSON with "final": true.

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

public final class GroupReader {
    // Arguments: bootstrap topic group records seconds records_file, then client properties as name=value.
    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[3]);
        long deadline = System.nanoTime() + Long.parseLong(arguments[4]) * 1_000_000_000L;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (int at = 6; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        long read = 0;
        TreeMap<Integer, Long> committed = new TreeMap<>();
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(arguments[5]), StandardCharsets.UTF_8);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singletonList(arguments[1]));
            while (read < wanted && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(200)) {
                    read++;
                    out.write(record.partition() + " " + record.offset() + " " + record.value() + "\n");
                }
            }
            consumer.commitSync();
            for (TopicPartition partition : consumer.assignment()) {
                OffsetAndMetadata position = consumer.committed(partition);
                if (position != null) {
                    committed.put(partition.partition(), position.offset());
                }
            }
        }
        StringBuilder offsets = new StringBuilder();
        committed.forEach((partition, offset) ->
            offsets.append(offsets.length() == 0 ? "" : ", ").append("\"" + partition + "\": " + offset));
        System.out.println("{\"records\": " + read + ", \"committed\": {" + offsets + "}, \"final\": true}");
        System.exit(read >= wanted ? 0 : 1);
    }
}
