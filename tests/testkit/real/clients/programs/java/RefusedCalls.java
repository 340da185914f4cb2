// Makes the calls that old brokers cannot serve, or not as asked, and says what each one gives. For clients 3.7 and later.
// The last line on standard output is JSON with "final": true.

import java.time.Duration;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

public final class RefusedCalls {
    // Arguments: bootstrap topic.
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, arguments[1]);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "1000"), AlterConfigOp.OpType.SET);
        Map<String, String> said = new LinkedHashMap<>();
        TopicPartition place = new TopicPartition(arguments[1], 0);
        try (Admin admin = Admin.create(settings)) {
            said.put("incrementalAlterConfigs", failure(admin.incrementalAlterConfigs(
                Collections.singletonMap(topic, Collections.singleton(change))).all()));
            said.put("createPartitions", failure(admin.createPartitions(
                Collections.singletonMap(arguments[1], NewPartitions.increaseTo(9))).all()));
            said.put("deleteConsumerGroups", failure(admin.deleteConsumerGroups(Collections.singleton("a")).all()));
            said.put("deleteRecords", failure(admin.deleteRecords(
                Collections.singletonMap(place, RecordsToDelete.beforeOffset(0))).all()));
            said.put("describeLogDirs", failure(admin.describeLogDirs(Collections.singleton(0)).allDescriptions()));
            said.put("listOffsets", failure(admin.listOffsets(
                Collections.singletonMap(place, OffsetSpec.maxTimestamp())).all()));
            said.put("offsetsOfGroups", failure(admin.listConsumerGroupOffsets(
                Map.of("a", new ListConsumerGroupOffsetsSpec(), "b", new ListConsumerGroupOffsetsSpec())).all()));
            Config told = admin.describeConfigs(Collections.singleton(topic)).all().get(30, TimeUnit.SECONDS).get(topic);
            ConfigEntry policy = told.get("cleanup.policy");
            said.put("describeConfigs", policy.value() + " " + policy.source());
            ConfigResource none = new ConfigResource(ConfigResource.Type.TOPIC, "no-such-topic");
            said.put("describeConfigsOfNone", failure(admin.describeConfigs(Collections.singleton(none)).all()));
        }
        said.put("newKindOfGroup", failureOfConsumer(settings, arguments[1], "group.protocol", "consumer"));
        said.put("staticMember", failureOfConsumer(settings, arguments[1], "group.instance.id", "a"));
        StringBuilder out = new StringBuilder("{");
        for (Map.Entry<String, String> one : said.entrySet()) {
            out.append("\"" + one.getKey() + "\": \"" + one.getValue().replace("\"", "'") + "\", ");
        }
        System.out.println(out + "\"final\": true}");
        System.exit(0);
    }

    private static String failureOfConsumer(Properties common, String topic, String name, String value) {
        Properties settings = new Properties();
        settings.putAll(common);
        settings.put("group.id", "of-" + name);
        settings.put(name, value);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(Collections.singleton(topic));
            long deadline = System.nanoTime() + 30_000_000_000L;
            while (System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(200));
            }
            return "no failure";
        } catch (KafkaException error) {
            return error.toString();
        }
    }

    private static String failure(KafkaFuture<?> answer) throws Exception {
        try {
            answer.get(30, TimeUnit.SECONDS);
            return "no failure";
        } catch (ExecutionException error) {
            return error.getCause().toString();
        }
    }
}
