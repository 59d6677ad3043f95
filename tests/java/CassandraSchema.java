import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.cql3.CQLStatement;
import org.apache.cassandra.cql3.QueryProcessor;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.SchemaTransformation;
import org.apache.cassandra.service.ClientState;

/**
 * Cassandra without a node: its settings, and a schema that comes from CQL statements. Statements are parsed, prepared
 * and applied by Cassandra's own classes. What differs between 4.1, 5.0 and 6.0 is called by name.
 */
final class CassandraSchema {
    private CassandraSchema() {}

    /** Settings as an offline tool of Cassandra has them; `settings` are further lines of cassandra.yaml. */
    static void initialise(Path directory, Map<String, String> settings) throws Exception {
        Map<String, String> lines = new TreeMap<>();
        lines.put("cluster_name", "peer");
        lines.put("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner");
        lines.put("data_file_directories", "[" + directory.resolve("data") + "]");
        lines.put("commitlog_directory", directory.resolve("commitlog").toString());
        lines.put("saved_caches_directory", directory.resolve("saved_caches").toString());
        lines.put("hints_directory", directory.resolve("hints").toString());
        lines.put("cdc_raw_directory", directory.resolve("cdc_raw").toString());
        lines.put("commitlog_sync", "periodic");
        lines.put("commitlog_sync_period", "10000ms");
        lines.put("endpoint_snitch", "SimpleSnitch");
        lines.put("listen_address", "127.0.0.1");
        lines.put("rpc_address", "127.0.0.1");
        lines.put("seed_provider",
            "[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: 127.0.0.1}]}]");
        lines.putAll(settings);
        // Whether direct I/O works is tried out there.
        Files.createDirectories(directory.resolve("commitlog"));
        StringBuilder text = new StringBuilder();
        lines.forEach((key, value) -> text.append(key).append(": ").append(value).append('\n'));
        Path yaml = directory.resolve("cassandra.yaml");
        Files.write(yaml, text.toString().getBytes(StandardCharsets.UTF_8));
        System.setProperty("cassandra.config", URI.create("file://" + yaml.toAbsolutePath()).toString());
        System.setProperty("cassandra.storagedir", directory.toString());
        // The layouts of system tables are wanted as well.
        System.setProperty("cassandra.schema.force_load_local_keyspaces", "true");
        DatabaseDescriptor.toolInitialization(false);
        try {
            // 6.0 keeps its schema in the cluster's metadata.
            Class.forName("org.apache.cassandra.tcm.ClusterMetadataService").getMethod("initializeForClients").invoke(null);
        } catch (ClassNotFoundException e) {
            // An older one.
        }
    }

    /** Apply every statement of a file: CREATE KEYSPACE, TYPE and TABLE (`WITH ID = …` fixes the id), and ALTER. */
    static void load(Path file) throws Exception {
        for (String statement : statements(new String(Files.readAllBytes(file), StandardCharsets.UTF_8))) apply(statement);
    }

    static void apply(String cql) throws Exception {
        ClientState state = ClientState.forInternalCalls();
        CQLStatement statement = QueryProcessor.parseStatement(cql).prepare(state);
        statement.validate(state);
        for (Method method : Schema.class.getMethods()) {
            boolean fits = method.getName().equals("transform") || method.getName().equals("submit");
            if (fits && method.getParameterCount() == 1) {
                try {
                    method.invoke(Schema.instance, (SchemaTransformation) statement);
                } catch (InvocationTargetException e) {
                    // What Cassandra itself says, and of which statement, not that it was called by name.
                    throw new IllegalArgumentException("refused: " + cql, e.getCause());
                }
                return;
            }
        }
        throw new IllegalStateException("no way to change the schema");
    }

    /** Split at semicolons outside of quotes; lines of comments are left out. */
    static List<String> statements(String text) {
        List<String> found = new ArrayList<>();
        StringBuilder current = new StringBuilder();
        char quote = 0;
        for (String line : text.split("\n")) {
            if (quote == 0 && line.trim().startsWith("--")) continue;
            for (char c : line.toCharArray()) {
                if (quote == 0 && (c == '\'' || c == '"')) quote = c;
                else if (c == quote) quote = 0;
                if (c == ';' && quote == 0) {
                    found.add(current.toString());
                    current.setLength(0);
                } else {
                    current.append(c);
                }
            }
            current.append('\n');
        }
        if (!current.toString().isBlank()) found.add(current.toString());
        found.removeIf(String::isBlank);
        return found;
    }
}
