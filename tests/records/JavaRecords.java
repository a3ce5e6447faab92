/*
 * The other side of test_java.py: Kafka's own record classes behind a stream of commands.
 *
 * Standard input holds, again and again, an int count and that many commands, until the count is 0.
 * A command is a byte and its arguments:
 *   W  codec, level, transactional, producer (id, epoch, sequence), base offset, append time,
 *      records                                              -> the batch that Java writes
 *   R  a batch                                              -> its header and records, or an error
 *   C  commit?, coordinator epoch, producer (id, epoch), timestamp, base offset, leader epoch
 *                                                           -> the marker batch that Java writes
 *   V  a produce partition's bytes, a topic's rules, now    -> error code and indexes, or a batch
 * The answers to each count of commands go to standard output in the same order, after an int with
 * the length of all of them. Numbers are big endian; bytes are preceded by an int length, -1 for null.
 */

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class JavaRecords {
    private static final int DEFAULT_LEVEL = Integer.MIN_VALUE;
    private static final int LEADER_EPOCH = 5;

    private final DataInputStream in;
    private final DataOutputStream out;

    private JavaRecords(DataInputStream in, DataOutputStream out) {
        this.in = in;
        this.out = out;
    }

    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int commands = in.readInt(); commands > 0; commands = in.readInt()) {
            ByteArrayOutputStream answers = new ByteArrayOutputStream();
            JavaRecords side = new JavaRecords(in, new DataOutputStream(answers));
            for (int i = 0; i < commands; i++) {
                char command = (char) in.readByte();
                switch (command) {
                    case 'W' -> side.write();
                    case 'R' -> side.read();
                    case 'C' -> side.writeMarker();
                    case 'V' -> side.validate();
                    default -> throw new IOException("unknown command " + command);
                }
            }
            out.writeInt(answers.size());
            answers.writeTo(out);
            out.flush();
        }
    }

    private void write() throws IOException {
        Compression compression = readCompression();
        boolean transactional = in.readBoolean();
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        int sequence = in.readInt();
        long baseOffset = in.readLong();
        long appendTime = in.readLong();
        TimestampType type = appendTime < 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16),
            RecordBatch.CURRENT_MAGIC_VALUE, compression, type, baseOffset, appendTime, producerId,
            producerEpoch, sequence, transactional, -1);
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            long timestamp = in.readLong();
            byte[] key = readBytes();
            byte[] value = readBytes();
            Header[] headers = new Header[in.readInt()];
            for (int h = 0; h < headers.length; h++)
                headers[h] = new RecordHeader(new String(readBytes(), StandardCharsets.UTF_8), readBytes());
            builder.appendWithOffset(baseOffset + i, timestamp, key, value, headers);
        }
        writeBytes(builder.build().buffer());
    }

    private void read() throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(readBytes()));
        List<Record> entries = new ArrayList<>();
        MutableRecordBatch batch;
        try {
            batch = records.batches().iterator().next();
            batch.ensureValid();
            for (Record record : batch)
                entries.add(record);
        } catch (RuntimeException e) {
            out.writeBoolean(false);
            writeBytes(ByteBuffer.wrap(String.valueOf(e).getBytes(StandardCharsets.UTF_8)));
            return;
        }
        out.writeBoolean(true);
        out.writeByte(batch.compressionType().id);
        out.writeBoolean(batch.isTransactional());
        out.writeBoolean(batch.isControlBatch());
        out.writeInt(batch.partitionLeaderEpoch());
        out.writeLong(batch.producerId());
        out.writeShort(batch.producerEpoch());
        out.writeInt(batch.lastSequence());
        out.writeLong(batch.lastOffset());
        out.writeLong(batch.maxTimestamp());
        out.writeLong(batch.deleteHorizonMs().orElse(-1));
        out.writeInt(entries.size());
        for (Record record : entries) {
            out.writeLong(record.offset());
            out.writeLong(record.timestamp());
            writeBytes(record.key());
            writeBytes(record.value());
            out.writeInt(record.headers().length);
            for (Header header : record.headers()) {
                writeBytes(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)));
                writeBytes(header.value() == null ? null : ByteBuffer.wrap(header.value()));
            }
        }
    }

    private void writeMarker() throws IOException {
        ControlRecordType type = in.readBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        EndTransactionMarker marker = new EndTransactionMarker(type, in.readInt());
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        long timestamp = in.readLong();
        long baseOffset = in.readLong();
        int leaderEpoch = in.readInt();
        writeBytes(MemoryRecords.withEndTransactionMarker(baseOffset, timestamp, leaderEpoch,
            producerId, producerEpoch, marker).buffer());
    }

    private void validate() throws IOException {
        byte[] bytes = readBytes();
        boolean compacted = in.readBoolean();
        boolean byAppend = in.readBoolean();
        long beforeMaxMs = in.readLong();
        long afterMaxMs = in.readLong();
        int maxMessageBytes = in.readInt();
        Optional<Compression> topicCompression =
            in.readBoolean() ? Optional.of(readCompression()) : Optional.empty();
        long now = in.readLong();
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
            ProduceRequest.validateRecords((short) 9, records);
            CompressionType source = analyze(records, maxMessageBytes);
            Compression target = topicCompression.orElseGet(() -> Compression.of(source).build());
            LogValidator.ValidationResult result = new LogValidator(trim(records),
                new TopicPartition("t", 0), new FixedTime(now), source, target, compacted,
                RecordBatch.CURRENT_MAGIC_VALUE,
                byAppend ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                beforeMaxMs, afterMaxMs, LEADER_EPOCH, AppendOrigin.CLIENT)
                .validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(100), new NoMetrics(),
                    BufferSupplier.create());
            out.writeShort(0);
            out.writeBoolean(result.messageSizeMaybeChanged());
            writeBytes(result.validatedRecords().buffer());
        } catch (RecordValidationException e) {
            out.writeShort(Errors.forException(e.invalidException()).code());
            out.writeInt(e.recordErrors().size());
            for (var error : e.recordErrors())
                out.writeInt(error.batchIndex);
        } catch (RuntimeException e) {
            out.writeShort(Errors.forException(e).code());
            out.writeInt(0);
        }
    }

    /** The checks that the log makes before its validator; that method of UnifiedLog is private. */
    private static CompressionType analyze(MemoryRecords records, int maxMessageBytes) {
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) {
            if (batch.baseOffset() != 0)
                throw new InvalidRecordException("base offset");
            if (batch.sizeInBytes() > maxMessageBytes)
                throw new RecordTooLargeException("size");
            if (!batch.isValid())
                throw new CorruptRecordException("crc");
            source = batch.compressionType();
        }
        return source;
    }

    private static MemoryRecords trim(MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        buffer.limit(records.validBytes());
        return MemoryRecords.readableRecords(buffer.slice());
    }

    private Compression readCompression() throws IOException {
        CompressionType type = CompressionType.forId(in.readByte());
        int level = in.readInt();
        if (level == DEFAULT_LEVEL)
            return Compression.of(type).build();
        return switch (type) {
            case GZIP -> Compression.gzip().level(level).build();
            case LZ4 -> Compression.lz4().level(level).build();
            case ZSTD -> Compression.zstd().level(level).build();
            default -> throw new IOException("no levels: " + type);
        };
    }

    private byte[] readBytes() throws IOException {
        int size = in.readInt();
        if (size < 0)
            return null;
        byte[] bytes = new byte[size];
        in.readFully(bytes);
        return bytes;
    }

    private void writeBytes(ByteBuffer buffer) throws IOException {
        if (buffer == null) {
            out.writeInt(-1);
            return;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    /** A clock that stands still. */
    private record FixedTime(long now) implements Time {
        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object object, java.util.function.Supplier<Boolean> condition, long deadline) {
            throw new UnsupportedOperationException();
        }
    }

    /** Counts nothing. */
    private static final class NoMetrics implements LogValidator.MetricsRecorder {
        @Override
        public void recordInvalidMagic() {
        }

        @Override
        public void recordInvalidOffset() {
        }

        @Override
        public void recordInvalidSequence() {
        }

        @Override
        public void recordInvalidChecksums() {
        }

        @Override
        public void recordNoKeyCompactedTopic() {
        }
    }
}
