// Makes the admin calls that old brokers cannot serve and says how each one fails. For clients 2.4 and later.
// The last line on standard output is JSON with "final": true.

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;

public final class RefusedCalls {
    // Arguments: bootstrap topic.
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, arguments[1]);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "1000"), AlterConfigOp.OpType.SET);
        Map<String, String> said = new LinkedHashMap<>();
        try (Admin admin = Admin.create(settings)) {
            said.put("describeConfigs", failure(admin.describeConfigs(Collections.singleton(topic)).all()));
            said.put("incrementalAlterConfigs", failure(admin.incrementalAlterConfigs(
                Collections.singletonMap(topic, Collections.singleton(change))).all()));
            said.put("createPartitions", failure(admin.createPartitions(
                Collections.singletonMap(arguments[1], NewPartitions.increaseTo(9))).all()));
        }
        StringBuilder out = new StringBuilder("{");
        for (Map.Entry<String, String> one : said.entrySet()) {
            out.append("\"" + one.getKey() + "\": \"" + one.getValue().replace("\"", "'") + "\", ");
        }
        System.out.println(out + "\"final\": true}");
        System.exit(0);
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
