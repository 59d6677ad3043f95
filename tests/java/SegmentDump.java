import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

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
import org.apache.cassandra.io.util.File;
import org.apache.cassandra.schema.TableId;

/**
 * A segment as Cassandra's own CommitLogReader sees it: a JSON line for each entry that it accepts, then one with the
 * errors that it told of and the tables that it did not know. Values, keys and paths are hexadecimal.
 */
final class SegmentDump implements CommitLogReadHandler {
    private final StringBuilder out;
    private final StringBuilder errors = new StringBuilder();
    private final boolean quiet;
    private int entries;

    /** Stops a segment at a marker that is bad: the reader would ask for the same one for ever. */
    private static final class EndOfSegment extends IOException {
        EndOfSegment() {
            super("a marker is bad");
        }
    }

    private SegmentDump(StringBuilder out, boolean quiet) {
        this.out = out;
        this.quiet = quiet;
    }

    /** Read one file; with `quiet` entries are counted only. */
    static String dump(String path, boolean quiet) {
        StringBuilder out = new StringBuilder();
        SegmentDump handler = new SegmentDump(out, quiet);
        CommitLogReader reader = new CommitLogReader();
        String aborted = null;
        try {
            reader.readCommitLogSegment(handler, new File(path), false);
        } catch (EndOfSegment e) {
            // Told of already.
        } catch (Throwable e) {
            aborted = e.toString();
        }
        out.append("{\"end\":true,\"entries\":").append(handler.entries);
        out.append(",\"errors\":[").append(handler.errors).append("],\"aborted\":").append(text(aborted));
        out.append(",\"unknown\":{");
        String comma = "";
        for (Map.Entry<TableId, AtomicInteger> table : reader.getInvalidMutations()) {
            out.append(comma).append(text(table.getKey().asUUID().toString())).append(':').append(table.getValue());
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
        if (quiet) return;
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
        out.append("{\"table\":\"").append(update.metadata().id.asUUID()).append("\",\"key\":");
        hex(update.partitionKey().getKey());
        out.append(",\"deletion\":");
        deletion(update.deletionInfo().getPartitionDeletion());
        out.append(",\"static\":");
        if (update.staticRow().isEmpty()) out.append("null");
        else row(update.staticRow());
        // Rows and range deletions as they were read: an iterator over both would filter them.
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
            out.append(comma);
            range(ranges.next());
            comma = ",";
        }
        out.append("]}");
    }

    private void range(RangeTombstone range) {
        out.append("{\"start\":");
        bound(range.deletedSlice().start());
        out.append(",\"end\":");
        bound(range.deletedSlice().end());
        out.append(",\"deletion\":");
        deletion(range.deletionTime());
        out.append('}');
    }

    private void bound(ClusteringBound<?> bound) {
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
            else cell((Cell<?>) data);
            comma = ",";
        }
        out.append("}}");
    }

    private void complex(ComplexColumnData data) {
        out.append("{\"deletion\":");
        deletion(data.complexDeletion());
        out.append(",\"cells\":[");
        Iterator<Cell<?>> cells = data.iterator();
        while (cells.hasNext()) {
            cell(cells.next());
            if (cells.hasNext()) out.append(',');
        }
        out.append("]}");
    }

    private void cell(Cell<?> cell) {
        out.append("{\"time\":").append(cell.timestamp());
        if (cell.isExpiring()) out.append(",\"ttl\":").append(cell.ttl());
        if (cell.isExpiring() || cell.isTombstone()) out.append(",\"ldt\":").append(cell.localDeletionTime());
        if (cell.path() != null) {
            out.append(",\"path\":");
            hex(cell.path().get(0));
        }
        out.append(",\"value\":");
        if (cell.isTombstone()) out.append("null");
        else hex(cell.buffer());
        out.append('}');
    }

    private void prefix(ClusteringPrefix<?> prefix) {
        out.append('[');
        for (int i = 0; i < prefix.size(); i++) {
            if (i > 0) out.append(',');
            ByteBuffer value = prefix.bufferAt(i);
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

    static String text(String value) {
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
