// Asks the admin client for the cluster and says where its brokers are. For clients 2.4 and later.
// The last line on standard output is JSON with "final": true.

import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Node;

public final class ClusterDescriber {
    // Arguments: bootstrap.
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        StringBuilder places = new StringBuilder();
        try (Admin admin = Admin.create(settings)) {
            for (Node node : admin.describeCluster().nodes().get(30, TimeUnit.SECONDS)) {
                places.append(places.length() == 0 ? "" : ", ").append("\"" + node.host() + ":" + node.port() + "\"");
            }
        }
        System.out.println("{\"brokers\": [" + places + "], \"final\": true}");
        System.exit(0);
    }
}
