// Reads a topic until it has n records (or the time is up), in one of two ways. With a group: as its member, and commits.
// Without: takes all partitions by hand and asks where they begin and end. For clients 2.4 and later. The last line on standard output is JSON with "final": true.

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

public final class ModernReader {
    // Arguments: bootstrap topic group (empty: none) records seconds records_file, then as name=value: client properties,
    // program.until_file, program.commit_every_seconds.
    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[3]);
        long deadline = System.nanoTime() + Long.parseLong(arguments[4]) * 1_000_000_000L;
        boolean grouped = !arguments[2].isEmpty();
        Properties settings = new Properties();
        if (grouped) {
            settings.put("group.id", arguments[2]);
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        Properties program = new Properties();
        for (int at = 6; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            (pair[0].startsWith("program.") ? program : settings).put(pair[0], pair[1]);
        }
        String until = program.getProperty("program.until_file");
        long commitEvery = (long) (Double.parseDouble(program.getProperty("program.commit_every_seconds", "1e9")) * 1e9);
        long committedAt = System.nanoTime();
        List<String> failures = new ArrayList<>();
        HashSet<String> values = new HashSet<>();
        long read = 0;
        String places;
        try (BufferedWriter out = Files.newBufferedWriter(Paths.get(arguments[5]), StandardCharsets.UTF_8);
                KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> all = consumer.partitionsFor(arguments[1]).stream()
                .map(info -> new TopicPartition(info.topic(), info.partition())).collect(Collectors.toList());
            if (grouped) {
                consumer.subscribe(Collections.singletonList(arguments[1]));
                places = "";
            } else {
                consumer.assign(all);
                places = "\"beginning\": " + shown(consumer.beginningOffsets(all))
                    + ", \"end\": " + shown(consumer.endOffsets(all));
                consumer.seekToBeginning(all);
            }
            while ((until == null ? read < wanted : !isEnough(values.size(), until)) && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    read++;
                    values.add(record.value());
                    out.write(record.partition() + " " + record.offset() + " " + record.value() + "\n");
                }
                if (grouped && System.nanoTime() - committedAt > commitEvery) {
                    committedAt = System.nanoTime();
                    commit(consumer, until, failures);
                }
            }
            if (grouped) {
                while (!commit(consumer, until, failures)) {
                    consumer.poll(Duration.ofMillis(500));
                }
                Map<TopicPartition, Long> committed = new HashMap<>();
                consumer.committed(new HashSet<>(all)).forEach((place, position) ->
                    committed.put(place, position == null ? -1 : position.offset()));
                places = "\"committed\": " + shown(committed);
            }
        }
        String failed = until == null ? "" : failures.stream()
            .map(one -> "\"" + one.replaceAll("[^ -~]|[\"\\\\]", " ") + "\"")
            .collect(Collectors.joining(", ", ", \"notices\": [", "]"));
        System.out.println("{\"records\": " + read + ", " + places + failed + ", \"final\": true}");
        System.exit((until == null ? read >= wanted : isEnough(values.size(), until)) ? 0 : 1);
    }

    // Was that committed? A commit that a rebalance or a coordinator that moves has spoilt is counted: the next has it, too.
    private static boolean commit(KafkaConsumer<?, ?> consumer, String until, List<String> failures) {
        try {
            consumer.commitSync();
        } catch (KafkaException error) {
            if (until == null) {
                throw error;
            }
            failures.add(error.toString());
            return false;
        }
        return true;
    }

    // The file has the number of different values that there are to read, as soon as it is known.
    private static boolean isEnough(int values, String until) throws Exception {
        if (!Files.exists(Paths.get(until))) {
            return false;
        }
        String text = new String(Files.readAllBytes(Paths.get(until)), StandardCharsets.UTF_8).trim();
        return !text.isEmpty() && values >= Long.parseLong(text);
    }

    private static String shown(Map<TopicPartition, Long> offsets) {
        TreeMap<Integer, Long> sorted = new TreeMap<>();
        offsets.forEach((place, offset) -> sorted.put(place.partition(), offset));
        return sorted.entrySet().stream().map(one -> "\"" + one.getKey() + "\": " + one.getValue())
            .collect(Collectors.joining(", ", "{", "}"));
    }
}
