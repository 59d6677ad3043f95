import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.cassandra.config.CFMetaData;
import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.config.Schema;
import org.apache.cassandra.cql3.QueryProcessor;
import org.apache.cassandra.cql3.statements.CFStatement;
import org.apache.cassandra.cql3.statements.CreateTableStatement;
import org.apache.cassandra.db.ClusteringBound;
import org.apache.cassandra.db.ClusteringPrefix;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.RangeTombstone;
import org.apache.cassandra.db.commitlog.CommitLogDescriptor;
import org.apache.cassandra.db.commitlog.CommitLogReadHandler;
import org.apache.cassandra.db.commitlog.CommitLogReader;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.Cell;
import org.apache.cassandra.db.rows.ColumnData;
import org.apache.cassandra.db.rows.ComplexColumnData;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.dht.Murmur3Partitioner;
import org.apache.cassandra.schema.KeyspaceMetadata;
import org.apache.cassandra.schema.KeyspaceParams;
import org.apache.cassandra.schema.Tables;
import org.apache.cassandra.schema.Types;

/**
 * Cassandra 3.11's own commit-log reader as a peer, for segments of format 6. It understands `schema` (keyspaces and
 * tables with an id, without user types) and `dump`, and answers as the peer of the later versions does; there,
 * SegmentDump says what the lines mean. Almost every class that it needs has another name or other methods there.
 */
public final class CommitLogPeer implements CommitLogReadHandler {
    private static final Pattern KEYSPACE = Pattern.compile("CREATE KEYSPACE (\\w+) .*", Pattern.DOTALL);
    private static final Pattern TABLE = Pattern.compile("CREATE TABLE (\\w+)\\.(.*)", Pattern.DOTALL);
    private static final Pattern ID = Pattern.compile("ID = ([0-9a-f-]{36})( AND )?");
    private final StringBuilder out = new StringBuilder();
    private final StringBuilder errors = new StringBuilder();
    private int entries;

    /** Stops a segment at a marker that is bad: the reader would ask for the same one for ever. */
    private static final class EndOfSegment extends IOException {
        EndOfSegment() {
            super("a marker is bad");
        }
    }

    public static void main(String[] arguments) throws Exception {
        OutputStream answers = new FileOutputStream(FileDescriptor.out);
        System.setOut(System.err);
        initialise(Paths.get(arguments[0]), arguments);
        answer(answers, "{\"ready\":true}\n");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            String answer;
            try {
                if (words[0].equals("schema")) answer = load(Paths.get(words[1]));
                else if (words[0].equals("dump")) answer = new CommitLogPeer().dump(words[1]);
                else throw new IllegalArgumentException("no command " + words[0]);
            } catch (Throwable e) {
                e.printStackTrace();
                answer = "{\"error\":" + text(String.valueOf(e)) + "}\n";
            }
            answer(answers, answer);
        }
        System.exit(0);
    }

    private static void answer(OutputStream answers, String text) throws IOException {
        answers.write(text.getBytes(StandardCharsets.UTF_8));
        answers.flush();
    }

    private static void initialise(Path directory, String[] arguments) throws Exception {
        Map<String, String> lines = new TreeMap<>();
        lines.put("cluster_name", "peer");
        lines.put("partitioner", "org.apache.cassandra.dht.Murmur3Partitioner");
        lines.put("data_file_directories", "[" + directory.resolve("data") + "]");
        lines.put("commitlog_directory", directory.resolve("commitlog").toString());
        lines.put("saved_caches_directory", directory.resolve("saved_caches").toString());
        lines.put("hints_directory", directory.resolve("hints").toString());
        lines.put("cdc_raw_directory", directory.resolve("cdc_raw").toString());
        lines.put("commitlog_sync", "periodic");
        lines.put("commitlog_sync_period_in_ms", "10000");
        lines.put("endpoint_snitch", "SimpleSnitch");
        lines.put("listen_address", "127.0.0.1");
        lines.put("rpc_address", "127.0.0.1");
        lines.put("seed_provider",
            "[{class_name: org.apache.cassandra.locator.SimpleSeedProvider, parameters: [{seeds: 127.0.0.1}]}]");
        for (int i = 1; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            lines.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        StringBuilder text = new StringBuilder();
        lines.forEach((key, value) -> text.append(key).append(": ").append(value).append('\n'));
        Path yaml = directory.resolve("cassandra.yaml");
        Files.write(yaml, text.toString().getBytes(StandardCharsets.UTF_8));
        System.setProperty("cassandra.config", "file://" + yaml.toAbsolutePath());
        System.setProperty("cassandra.storagedir", directory.toString());
        DatabaseDescriptor.toolInitialization();
    }

    /** The tables of a file, each with the id that it says. */
    private static String load(Path file) throws Exception {
        Map<String, List<CFMetaData>> tables = new TreeMap<>();
        StringBuilder text = new StringBuilder();
        for (String line : Files.readAllLines(file)) if (!line.trim().startsWith("--")) text.append(line).append('\n');
        for (String statement : text.toString().split(";")) {
            Matcher keyspace = KEYSPACE.matcher(statement.trim());
            Matcher table = TABLE.matcher(statement.trim());
            if (keyspace.matches()) tables.put(keyspace.group(1), new ArrayList<>());
            else if (table.matches()) tables.get(table.group(1)).add(table(table.group(1), table.group(2)));
        }
        for (Map.Entry<String, List<CFMetaData>> one : tables.entrySet()) {
            Tables all = Tables.builder().add(one.getValue()).build();
            Schema.instance.load(KeyspaceMetadata.create(one.getKey(), KeyspaceParams.simple(1), all));
        }
        return "{\"done\":true}\n";
    }

    private static CFMetaData table(String keyspace, String rest) throws Exception {
        Matcher id = ID.matcher(rest);
        if (!id.find()) throw new IllegalArgumentException("a table without an id: " + rest);
        String cql = "CREATE TABLE " + id.replaceFirst("");
        CFStatement parsed = (CFStatement) QueryProcessor.parseStatement(cql);
        parsed.prepareKeyspace(keyspace);
        CreateTableStatement statement =
            (CreateTableStatement) ((CreateTableStatement.RawStatement) parsed).prepare(Types.none()).statement;
        return statement.metadataBuilder()
            .withId(UUID.fromString(id.group(1)))
            .withPartitioner(Murmur3Partitioner.instance)
            .build()
            .params(statement.params());
    }

    private String dump(String path) {
        CommitLogReader reader = new CommitLogReader();
        String aborted = null;
        try {
            reader.readCommitLogSegment(this, new File(path), false);
        } catch (EndOfSegment e) {
            // Told of already.
        } catch (Throwable e) {
            aborted = e.toString();
        }
        out.append("{\"end\":true,\"entries\":").append(entries);
        out.append(",\"errors\":[").append(errors).append("],\"aborted\":").append(text(aborted));
        out.append(",\"unknown\":{");
        String comma = "";
        for (Map.Entry<UUID, AtomicInteger> table : reader.getInvalidMutations()) {
            out.append(comma).append(text(table.getKey().toString())).append(':').append(table.getValue());
            comma = ",";
        }
        return out.append("}}\n").toString();
    }

    @Override
    public boolean shouldSkipSegmentOnError(CommitLogReadException error) {
        note(error);
        return false;
    }

    @Override
    public void handleUnrecoverableError(CommitLogReadException error) throws IOException {
        note(error);
        if (error.getMessage().startsWith("Encountered bad header")) throw new EndOfSegment();
    }

    private void note(CommitLogReadException error) {
        if (errors.length() > 0) errors.append(',');
        errors.append("{\"reason\":\"").append(error.reason).append("\",\"message\":").append(text(error.getMessage()));
        errors.append('}');
    }

    @Override
    public void handleMutation(Mutation mutation, int size, int position, CommitLogDescriptor descriptor) {
        entries++;
        out.append("{\"position\":").append(position).append(",\"size\":").append(size).append(",\"updates\":[");
        String comma = "";
        for (PartitionUpdate update : mutation.getPartitionUpdates()) {
            out.append(comma);
            update(update);
            comma = ",";
        }
        out.append("]}\n");
    }

    private void update(PartitionUpdate update) {
        out.append("{\"table\":\"").append(update.metadata().cfId).append("\",\"key\":");
        hex(update.partitionKey().getKey());
        out.append(",\"deletion\":");
        deletion(update.deletionInfo().getPartitionDeletion());
        out.append(",\"static\":");
        if (update.staticRow().isEmpty()) out.append("null");
        else row(update.staticRow());
        out.append(",\"rows\":[");
        String comma = "";
        for (Row row : update) {
            out.append(comma);
            row(row);
            comma = ",";
        }
        out.append("],\"ranges\":[");
        comma = "";
        Iterator<RangeTombstone> ranges = update.deletionInfo().rangeIterator(false);
        while (ranges.hasNext()) {
            RangeTombstone range = ranges.next();
            out.append(comma).append("{\"start\":");
            bound(range.deletedSlice().start());
            out.append(",\"end\":");
            bound(range.deletedSlice().end());
            out.append(",\"deletion\":");
            deletion(range.deletionTime());
            out.append('}');
            comma = ",";
        }
        out.append("]}");
    }

    private void bound(ClusteringBound bound) {
        out.append("{\"inclusive\":").append(bound.isInclusive()).append(",\"values\":");
        prefix(bound);
        out.append('}');
    }

    private void row(Row row) {
        out.append("{\"clustering\":");
        if (row.isStatic()) out.append("null");
        else prefix(row.clustering());
        LivenessInfo info = row.primaryKeyLivenessInfo();
        out.append(",\"time\":");
        if (info.isEmpty()) out.append("null");
        else out.append(info.timestamp());
        if (info.isExpiring()) {
            out.append(",\"ttl\":").append(info.ttl()).append(",\"ldt\":").append(info.localExpirationTime());
        }
        out.append(",\"deletion\":");
        deletion(row.deletion().time());
        out.append(",\"cells\":{");
        String comma = "";
        for (ColumnData data : row) {
            out.append(comma).append(text(data.column().name.toString())).append(':');
            if (data.column().isComplex()) complex((ComplexColumnData) data);
            else cell((Cell) data);
            comma = ",";
        }
        out.append("}}");
    }

    private void complex(ComplexColumnData data) {
        out.append("{\"deletion\":");
        deletion(data.complexDeletion());
        out.append(",\"cells\":[");
        String comma = "";
        for (Cell cell : data) {
            out.append(comma);
            cell(cell);
            comma = ",";
        }
        out.append("]}");
    }

    private void cell(Cell cell) {
        out.append("{\"time\":").append(cell.timestamp());
        if (cell.isExpiring()) out.append(",\"ttl\":").append(cell.ttl());
        if (cell.isExpiring() || cell.isTombstone()) out.append(",\"ldt\":").append(cell.localDeletionTime());
        if (cell.path() != null) {
            out.append(",\"path\":");
            hex(cell.path().get(0));
        }
        out.append(",\"value\":");
        if (cell.isTombstone()) out.append("null");
        else hex(cell.value());
        out.append('}');
    }

    private void prefix(ClusteringPrefix prefix) {
        out.append('[');
        for (int i = 0; i < prefix.size(); i++) {
            if (i > 0) out.append(',');
            ByteBuffer value = prefix.get(i);
            if (value == null) out.append("null");
            else hex(value);
        }
        out.append(']');
    }

    private void deletion(DeletionTime time) {
        if (time.isLive()) out.append("null");
        else out.append('[').append(time.markedForDeleteAt()).append(',').append(time.localDeletionTime()).append(']');
    }

    private void hex(ByteBuffer value) {
        out.append('"');
        for (int i = value.position(); i < value.limit(); i++) {
            int b = value.get(i);
            out.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        out.append('"');
    }

    private static String text(String value) {
        if (value == null) return "null";
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') quoted.append('\\').append(c);
            else if (c < 32) quoted.append(String.format("\\u%04x", (int) c));
            else quoted.append(c);
        }
        return quoted.append('"').toString();
    }
}
