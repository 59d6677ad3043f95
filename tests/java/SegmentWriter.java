import java.io.IOException;
import java.math.BigDecimal;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

import org.apache.cassandra.config.DatabaseDescriptor;
import org.apache.cassandra.config.ParameterizedClass;
import org.apache.cassandra.db.Clustering;
import org.apache.cassandra.db.DecoratedKey;
import org.apache.cassandra.db.DeletionTime;
import org.apache.cassandra.db.LivenessInfo;
import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.RangeTombstone;
import org.apache.cassandra.db.RegularAndStaticColumns;
import org.apache.cassandra.db.Slice;
import org.apache.cassandra.db.commitlog.CommitLog;
import org.apache.cassandra.db.commitlog.CommitLogDescriptor;
import org.apache.cassandra.db.commitlog.CommitLogReadHandler;
import org.apache.cassandra.db.commitlog.CommitLogReader;
import org.apache.cassandra.db.marshal.AbstractType;
import org.apache.cassandra.db.marshal.UTF8Type;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.BTreeRow;
import org.apache.cassandra.db.rows.BufferCell;
import org.apache.cassandra.db.rows.CellPath;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.ColumnMetadata;
import org.apache.cassandra.schema.Schema;
import org.apache.cassandra.schema.TableMetadata;
import org.apache.cassandra.utils.ByteBufferUtil;

/**
 * Segments that Cassandra's own commit log writes, of a workload that is made here, or of the mutations of other
 * segments (`source`), which gives the same content in another format or compression.
 *
 * Settings: `to` (a directory), `workload` (mixed or small) or `source` (files, with commas), `mutations`, `seed`,
 * `compression` (a class, or none), `sync` (a section is closed after so many mutations; 0: only at the end).
 */
final class SegmentWriter {
    // A round moment from which the write times count on.
    private static final long EPOCH_US = 1_760_000_000_000_000L;
    private static final int DAY_S = 86_400;

    private static boolean started;
    private final Random random;
    private final TableMetadata table;
    private long time = EPOCH_US;

    private SegmentWriter(TableMetadata table, long seed) {
        this.table = table;
        this.random = new Random(seed);
    }

    static String run(Map<String, String> settings, Path directory) throws Exception {
        String compression = settings.getOrDefault("compression", "none");
        int sync = Integer.parseInt(settings.getOrDefault("sync", "0"));
        DatabaseDescriptor.setCommitLogCompression(
            compression.equals("none") ? null : new ParameterizedClass(compression, Collections.emptyMap()));
        CommitLog log = CommitLog.instance;
        if (started) {
            // All segments were taken away after the last time, so that there is nothing to replay.
            log.resetConfiguration();
            log.restartUnsafe();
        } else {
            log.resetConfiguration();
            log.start();
            started = true;
        }
        List<Long> count = new ArrayList<>(List.of(0L));
        Appender appender = mutation -> {
            log.add(mutation);
            count.set(0, count.get(0) + 1);
            if (sync > 0 && count.get(0) % sync == 0) log.sync(true);
        };
        if (settings.containsKey("source")) copy(settings.get("source").split(","), appender);
        else make(settings, appender);
        log.sync(true);
        // Stopping waits for the segment that is made beforehand only where assertions are on.
        log.segmentManager.shutdown();
        if (!log.segmentManager.awaitTermination(1, TimeUnit.MINUTES)) throw new IOException("the commit log did not stop");
        log.stopUnsafe(false);
        List<Path> files = collect(directory, Path.of(settings.get("to")));
        String names = files.stream().map(f -> SegmentDump.text(f.toString())).collect(Collectors.joining(","));
        return "{\"mutations\":" + count.get(0) + ",\"files\":[" + names + "]}\n";
    }

    private interface Appender {
        void append(Mutation mutation) throws IOException;
    }

    /** The segments with something in them go to `to`, with their index files. */
    private static List<Path> collect(Path directory, Path to) throws IOException {
        Files.createDirectories(to);
        List<Path> moved = new ArrayList<>();
        for (String from : List.of("commitlog", "cdc_raw")) {
            if (!Files.isDirectory(directory.resolve(from))) continue;
            try (Stream<Path> found = Files.list(directory.resolve(from))) {
                for (Path path : found.sorted().collect(Collectors.toList())) {
                    boolean segment = path.toString().endsWith(".log");
                    Path target = to.resolve(path.getFileName());
                    if (segment && Files.exists(target)) Files.delete(path);
                    else Files.move(path, target, StandardCopyOption.REPLACE_EXISTING);
                    if (segment && !moved.contains(target)) moved.add(target);
                }
            }
        }
        return moved;
    }

    private static void copy(String[] files, Appender appender) throws IOException {
        CommitLogReadHandler handler = new CommitLogReadHandler() {
            @Override
            public boolean shouldSkipSegmentOnError(CommitLogReadException error) {
                throw new IllegalStateException(error.getMessage());
            }

            @Override
            public void handleUnrecoverableError(CommitLogReadException error) {
                throw new IllegalStateException(error.getMessage());
            }

            @Override
            public void handleMutation(Mutation mutation, int size, int position, CommitLogDescriptor descriptor) {
                try {
                    appender.append(mutation);
                } catch (IOException e) {
                    throw new IllegalStateException(e);
                }
            }
        };
        for (String file : files) new CommitLogReader().readCommitLogSegment(handler, new File(file), false);
    }

    private static void make(Map<String, String> settings, Appender appender) throws IOException {
        String workload = settings.get("workload");
        TableMetadata table = Schema.instance.getTableMetadata("bench", workload);
        SegmentWriter writer = new SegmentWriter(table, Long.parseLong(settings.getOrDefault("seed", "1")));
        long mutations = Long.parseLong(settings.get("mutations"));
        for (long i = 0; i < mutations; i++) {
            appender.append(new Mutation(workload.equals("small") ? writer.small(i) : writer.mixed()));
        }
    }

    private PartitionUpdate small(long number) {
        time += 1 + random.nextInt(200);
        Row.Builder row = row(clustering(new Date(time / 1000 + number % 7)), 0);
        String[] columns = {"name", "value", "quality"};
        set(row, "name", "sensor-" + random.nextInt(1000), 0);
        set(row, "value", random.nextDouble() * 100, 0);
        set(row, "quality", random.nextInt(100), 0);
        return update(key(random.nextLong() & 0xffff), row.build(), columns);
    }

    private PartitionUpdate mixed() {
        time += 1 + random.nextInt(200);
        DecoratedKey key = key(new UUID(0x1234_5678_9abc_4defL, 1L << 63 | random.nextInt(5000)));
        Clustering<?> clustering = clustering(20_300 + random.nextInt(100) + Integer.MIN_VALUE, new Date(time / 1000));
        int kind = random.nextInt(100);
        if (kind < 50) return insert(key, clustering);
        if (kind < 75) return change(key, clustering);
        if (kind < 83) return append(key, clustering, "labels");
        if (kind < 90) return append(key, clustering, "tags");
        if (kind < 94) return statics(key);
        if (kind < 97) {
            Row.Builder row = BTreeRow.unsortedBuilder();
            row.newRow(clustering);
            row.addRowDeletion(Row.Deletion.regular(deletion()));
            return update(key, row.build());
        }
        PartitionUpdate.Builder builder = builder(key);
        if (kind == 99) builder.addPartitionDeletion(deletion());
        else builder.add(new RangeTombstone(Slice.make(clustering, clustering(20_500 + Integer.MIN_VALUE, new Date(0))), deletion()));
        return builder.build();
    }

    private PartitionUpdate insert(DecoratedKey key, Clustering<?> clustering) {
        int ttl = random.nextInt(4) == 0 ? DAY_S : 0;
        Row.Builder row = row(clustering, ttl);
        String[] columns = {"name", "amount", "quantity", "total", "weight", "active", "changed", "reference", "note", "payload", "address"};
        set(row, "name", "customer number " + random.nextInt(5000), ttl);
        set(row, "amount", BigDecimal.valueOf(random.nextInt(1_000_000), 2), ttl);
        set(row, "quantity", random.nextInt(), ttl);
        set(row, "total", random.nextLong(), ttl);
        set(row, "weight", random.nextGaussian(), ttl);
        set(row, "active", random.nextBoolean(), ttl);
        set(row, "changed", new Date(time / 1000 - random.nextInt(100_000)), ttl);
        set(row, "reference", new UUID(random.nextLong() & ~0xf000L | 0x4000L, random.nextLong() & ~(3L << 62) | (1L << 63)), ttl);
        set(row, "note", "please ring twice at door " + random.nextInt(100) + ", thank you", ttl);
        byte[] payload = new byte[16 + random.nextInt(32)];
        random.nextBytes(payload);
        set(row, "payload", ByteBuffer.wrap(payload), ttl);
        set(row, "address", address(), ttl);
        return update(key, row.build(), columns);
    }

    private PartitionUpdate change(DecoratedKey key, Clustering<?> clustering) {
        Row.Builder row = BTreeRow.unsortedBuilder();
        row.newRow(clustering);
        set(row, "quantity", random.nextInt(), 0);
        set(row, "total", random.nextLong(), 0);
        if (random.nextInt(10) == 0) row.addCell(BufferCell.tombstone(column("note"), time, second()));
        else set(row, "note", "changed " + random.nextInt(1000), 0);
        return update(key, row.build(), "quantity", "total", "note");
    }

    private PartitionUpdate append(DecoratedKey key, Clustering<?> clustering, String name) {
        Row.Builder row = BTreeRow.unsortedBuilder();
        row.newRow(clustering);
        ColumnMetadata column = column(name);
        boolean map = name.equals("labels");
        for (int i = 0; i < 2; i++) {
            CellPath path = CellPath.create(UTF8Type.instance.decompose("element " + random.nextInt(50) + i));
            ByteBuffer value = map ? UTF8Type.instance.decompose("value " + random.nextInt(1000)) : ByteBufferUtil.EMPTY_BYTE_BUFFER;
            row.addCell(BufferCell.expiring(column, time, DAY_S, second(), value, path));
        }
        return update(key, row.build(), name);
    }

    private PartitionUpdate statics(DecoratedKey key) {
        Row.Builder row = BTreeRow.unsortedBuilder();
        row.newRow(Clustering.STATIC_CLUSTERING);
        set(row, "owner", "owner " + random.nextInt(100), 0);
        set(row, "region", "region " + random.nextInt(10), 0);
        return update(key, row.build(), "owner", "region");
    }

    private Row.Builder row(Clustering<?> clustering, int ttl) {
        Row.Builder row = BTreeRow.unsortedBuilder();
        row.newRow(clustering);
        row.addPrimaryKeyLivenessInfo(LivenessInfo.create(time, ttl, second()));
        return row;
    }

    private void set(Row.Builder row, String name, Object value, int ttl) {
        ColumnMetadata column = column(name);
        ByteBuffer bytes = bytes(column.type, value);
        row.addCell(ttl == 0
            ? BufferCell.live(column, time, bytes)
            : BufferCell.expiring(column, time, ttl, second(), bytes));
    }

    private PartitionUpdate update(DecoratedKey key, Row row, String... columns) {
        PartitionUpdate.Builder builder = builder(key, columns);
        builder.add(row);
        return builder.build();
    }

    private PartitionUpdate.Builder builder(DecoratedKey key, String... names) {
        RegularAndStaticColumns.Builder columns = RegularAndStaticColumns.builder();
        for (String name : names) columns.add(column(name));
        return new PartitionUpdate.Builder(table, key, columns.build(), 1);
    }

    /** 4.1 takes an int, the later ones a long. */
    private int second() {
        return (int) (time / 1_000_000);
    }

    private DeletionTime deletion() {
        try {
            try {
                return (DeletionTime) DeletionTime.class.getMethod("build", long.class, long.class).invoke(null, time, second());
            } catch (NoSuchMethodException e) {
                return DeletionTime.class.getConstructor(long.class, int.class).newInstance(time, second());
            }
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private DecoratedKey key(Object value) {
        return table.partitioner.decorateKey(bytes(table.partitionKeyType, value));
    }

    private Clustering<?> clustering(Object... values) {
        return table.comparator.make(values);
    }

    private ColumnMetadata column(String name) {
        return table.getColumn(ByteBufferUtil.bytes(name));
    }

    @SuppressWarnings("unchecked")
    private static ByteBuffer bytes(AbstractType<?> type, Object value) {
        return ((AbstractType<Object>) type).decompose(value);
    }

    private InetAddress address() {
        try {
            byte[] bytes = new byte[random.nextInt(4) == 0 ? 16 : 4];
            random.nextBytes(bytes);
            return InetAddress.getByAddress(bytes);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
