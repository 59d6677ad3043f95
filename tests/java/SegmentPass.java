import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.List;

import com.sun.management.OperatingSystemMXBean;

import org.apache.cassandra.db.Mutation;
import org.apache.cassandra.db.commitlog.CommitLogDescriptor;
import org.apache.cassandra.db.commitlog.CommitLogReadHandler;
import org.apache.cassandra.db.commitlog.CommitLogReader;
import org.apache.cassandra.db.marshal.AbstractType;
import org.apache.cassandra.db.marshal.CollectionType;
import org.apache.cassandra.db.partitions.PartitionUpdate;
import org.apache.cassandra.db.rows.Cell;
import org.apache.cassandra.db.rows.ColumnData;
import org.apache.cassandra.db.rows.ComplexColumnData;
import org.apache.cassandra.db.rows.Row;
import org.apache.cassandra.db.rows.Unfiltered;
import org.apache.cassandra.db.rows.UnfilteredRowIterator;
import org.apache.cassandra.io.util.File;

/** One timed pass over segments: CPU time of the whole process, so that what the collector does counts too. */
final class SegmentPass implements CommitLogReadHandler {
    private final boolean rows;
    private final boolean values;
    private long mutations;
    private long rowCount;
    private long markers;
    private long cells;
    // What is read is used, so that nothing can be left out by the compiler.
    private long sum;

    private SegmentPass(String mode) {
        rows = !mode.equals("deserialise");
        values = mode.equals("values");
    }

    static String run(String mode, List<String> files) throws Exception {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        SegmentPass pass = new SegmentPass(mode);
        CommitLogReader reader = new CommitLogReader();
        long wall = System.nanoTime();
        long cpu = system.getProcessCpuTime();
        for (String file : files) reader.readCommitLogSegment(pass, new File(file), false);
        cpu = system.getProcessCpuTime() - cpu;
        wall = System.nanoTime() - wall;
        long unknown = reader.getInvalidMutations().stream().mapToLong(table -> table.getValue().get()).sum();
        return String.format(
            "{\"mutations\":%d,\"rows\":%d,\"markers\":%d,\"cells\":%d,\"unknown\":%d,\"sum\":%d,\"cpu_s\":%.6f,\"wall_s\":%.6f}%n",
            pass.mutations, pass.rowCount, pass.markers, pass.cells, unknown, pass.sum, cpu / 1e9, wall / 1e9);
    }

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
        mutations++;
        if (!rows) return;
        for (PartitionUpdate update : mutation.getPartitionUpdates()) {
            if (!update.staticRow().isEmpty()) row(update.staticRow());
            try (UnfilteredRowIterator items = update.unfilteredIterator()) {
                while (items.hasNext()) {
                    Unfiltered item = items.next();
                    if (item.isRow()) row((Row) item);
                    else markers++;
                }
            }
        }
    }

    private void row(Row row) {
        rowCount++;
        sum += row.primaryKeyLivenessInfo().timestamp();
        if (values && !row.isStatic()) {
            for (int i = 0; i < row.clustering().size(); i++) sum += row.clustering().dataSize();
        }
        for (ColumnData data : row) {
            if (!data.column().isComplex()) {
                cell((Cell<?>) data, data.column().type);
                continue;
            }
            AbstractType<?> type = data.column().type;
            AbstractType<?> element = type instanceof CollectionType ? ((CollectionType<?>) type).valueComparator() : null;
            for (Cell<?> cell : (ComplexColumnData) data) cell(cell, element);
        }
    }

    private void cell(Cell<?> cell, AbstractType<?> type) {
        cells++;
        sum += cell.timestamp() + cell.valueSize();
        if (!values || type == null || cell.isTombstone()) return;
        ByteBuffer value = cell.buffer();
        if (!value.hasRemaining()) return;
        Object object = type.compose(value);
        if (object != null) sum += object.hashCode();
    }
}
