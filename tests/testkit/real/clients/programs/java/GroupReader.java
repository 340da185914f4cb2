// Subscribes as a member of a group, reads until it has n records (or the time is up), commits, and says where it stands.
// Without a group it takes all partitions from their begin, and says their first offsets of a time.
// For clients 0.9 to 3.x. The last line on standard output is JSON with "final": true.

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public final class GroupReader {
    // Arguments: bootstrap topic group records seconds records_file, then client properties as name=value, and
    // program.time_ms.
    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[3]);
        long deadline = System.nanoTime() + Long.parseLong(arguments[4]) * 1_000_000_000L;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        boolean inGroup = !arguments[2].isEmpty();
        if (inGroup) {
            settings.put("group.id", arguments[2]);
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        for (int at = 6; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        String time = (String) settings.remove("program.time_ms");
        long read = 0;
        TreeMap<Integer, Long> committed = new TreeMap<>();
        TreeMap<Integer, Long> times = new TreeMap<>();
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(arguments[5]), StandardCharsets.UTF_8);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> places = new ArrayList<>();
            if (inGroup) {
                consumer.subscribe(Collections.singletonList(arguments[1]));
            } else {
                for (PartitionInfo one : consumer.partitionsFor(arguments[1])) {
                    places.add(new TopicPartition(arguments[1], one.partition()));
                }
                consumer.assign(places);
            }
            while (read < wanted && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(200)) {
                    read++;
                    out.write(record.partition() + " " + record.offset() + " " + record.value() + "\n");
                }
            }
            if (inGroup) {
                consumer.commitSync();
                for (TopicPartition partition : consumer.assignment()) {
                    OffsetAndMetadata position = consumer.committed(partition);
                    if (position != null) {
                        committed.put(partition.partition(), position.offset());
                    }
                }
            }
            if (time != null) {
                findTimes(consumer, places, Long.parseLong(time), times);
            }
        }
        String found = inGroup ? "\"committed\": " + shown(committed) : "\"times\": " + shown(times);
        System.out.println("{\"records\": " + read + ", " + found + ", \"final\": true}");
        System.exit(read >= wanted ? 0 : 1);
    }

    // By reflection, as clients before 0.10.1 have no such call.
    private static void findTimes(
            KafkaConsumer<String, String> consumer, List<TopicPartition> places, long time, Map<Integer, Long> times)
            throws Exception {
        Map<TopicPartition, Long> asked = new HashMap<>();
        for (TopicPartition place : places) {
            asked.put(place, time);
        }
        Map<?, ?> found = (Map<?, ?>) KafkaConsumer.class.getMethod("offsetsForTimes", Map.class).invoke(consumer, asked);
        for (TopicPartition place : places) {
            Object one = found.get(place);
            times.put(place.partition(), one == null ? -1L : (Long) one.getClass().getMethod("offset").invoke(one));
        }
    }

    private static String shown(TreeMap<Integer, Long> found) {
        StringBuilder offsets = new StringBuilder();
        found.forEach((partition, offset) ->
            offsets.append(offsets.length() == 0 ? "" : ", ").append("\"" + partition + "\": " + offset));
        return "{" + offsets + "}";
    }
}
