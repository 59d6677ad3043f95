import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client, driven by lines on standard input, so that the measured rounds find it warm.
 *
 * <pre>
 * topic NAME FLUSH_MESSAGES
 * append TOPIC APPENDERS BYTES RECORDS LINGER_MS PRODUCERS   each appender waits for its acknowledgement (acks=all)
 * pipeline TOPIC BYTES RECORDS                               one producer that never waits, until the last ack
 * latency TOPIC BYTES MESSAGES PAUSE_US MODE                 MODE: sequential (as EndToEndLatency) or threaded
 * end TOPIC                                                  the log end offset
 * </pre>
 *
 * Each answer is one line of JSON; times are microseconds. End of input ends the program.
 */
public final class KafkaPeer {
    private static final long TIMEOUT_S = 120;
    private final String servers;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    private KafkaPeer(String servers) {
        this.servers = servers;
    }

    public static void main(String[] arguments) throws Exception {
        KafkaPeer peer = new KafkaPeer(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("{\"ready\": true}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            String answer;
            try {
                answer = peer.run(words);
            } catch (Exception error) {
                answer = "{\"error\": \"" + error.toString().replace('"', '\'').replace('\n', ' ') + "\"}";
            }
            System.out.println(answer);
            System.out.flush();
        }
        for (KafkaProducer<byte[], byte[]> producer : peer.producers.values()) {
            producer.close(Duration.ofSeconds(5));
        }
    }

    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "topic":
                return topic(words[1], words[2]);
            case "append":
                return append(words[1], number(words[2]), number(words[3]), number(words[4]), number(words[5]),
                        number(words[6]));
            case "pipeline":
                return pipeline(words[1], number(words[2]), number(words[3]));
            case "latency":
                return latency(words[1], number(words[2]), number(words[3]), number(words[4]),
                        words[5].equals("threaded"));
            case "end":
                return end(words[1]);
            default:
                throw new IllegalArgumentException("unknown command " + words[0]);
        }
    }

    private static int number(String word) {
        return Integer.parseInt(word);
    }

    private String topic(String name, String flushMessages) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        try (Admin admin = Admin.create(properties)) {
            Map<String, String> configs = Map.of("flush.messages", flushMessages);
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1).configs(configs))).all()
                    .get(TIMEOUT_S, TimeUnit.SECONDS);
        }
        return "{\"topic\": \"" + name + "\"}";
    }

    private KafkaProducer<byte[], byte[]> producer(int linger, int index) {
        return producers.computeIfAbsent(linger + "/" + index, key -> {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", servers);
            properties.put("acks", "all");
            properties.put("linger.ms", Integer.toString(linger));
            return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        });
    }

    private KafkaConsumer<byte[], byte[]> consumer(TopicPartition partition) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(partition));
        consumer.seekToEnd(List.of(partition));
        consumer.position(partition);
        return consumer;
    }

    private String end(String topic) {
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(partition)) {
            return "{\"end\": " + consumer.endOffsets(List.of(partition)).get(partition) + "}";
        }
    }

    private static byte[] payload(int bytes, long seed) {
        byte[] value = new byte[bytes];
        new java.util.Random(seed).nextBytes(value);
        return value;
    }

    private String append(String topic, int appenders, int bytes, int records, int linger, int producerCount)
            throws Exception {
        long[] latencies = new long[records];
        AtomicInteger next = new AtomicInteger();
        AtomicReference<Exception> failure = new AtomicReference<>();
        CountDownLatch ready = new CountDownLatch(appenders);
        CountDownLatch go = new CountDownLatch(1);
        Thread[] threads = new Thread[appenders];
        for (int index = 0; index < appenders; index++) {
            KafkaProducer<byte[], byte[]> producer = producer(linger, index % producerCount);
            producer.partitionsFor(topic);
            byte[] value = payload(bytes, index);
            threads[index] = new Thread(() -> {
                try {
                    ready.countDown();
                    go.await();
                    for (int record = next.getAndIncrement(); record < records; record = next.getAndIncrement()) {
                        long begin = System.nanoTime();
                        producer.send(new ProducerRecord<>(topic, null, value)).get(TIMEOUT_S, TimeUnit.SECONDS);
                        latencies[record] = System.nanoTime() - begin;
                    }
                } catch (Exception error) {
                    failure.compareAndSet(null, error);
                }
            });
            threads[index].start();
        }
        ready.await();
        long begin = System.nanoTime();
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        long elapsed = System.nanoTime() - begin;
        if (failure.get() != null) {
            throw failure.get();
        }
        return "{\"records\": " + records + ", \"wall_s\": " + elapsed / 1e9 + ", \"ack_us\": " + micros(latencies) + "}";
    }

    private String pipeline(String topic, int bytes, int records) throws Exception {
        // Five milliseconds is the client's own default since Kafka 4.0: the producer as people run it.
        KafkaProducer<byte[], byte[]> producer = producer(5, 0);
        producer.partitionsFor(topic);
        byte[] value = payload(bytes, 1);
        AtomicReference<Exception> failure = new AtomicReference<>();
        long begin = System.nanoTime();
        for (int record = 0; record < records; record++) {
            producer.send(new ProducerRecord<>(topic, null, value), (metadata, error) -> {
                if (error != null) {
                    failure.compareAndSet(null, error);
                }
            });
        }
        producer.flush();
        long elapsed = System.nanoTime() - begin;
        if (failure.get() != null) {
            throw failure.get();
        }
        return "{\"records\": " + records + ", \"wall_s\": " + elapsed / 1e9 + "}";
    }

    private String latency(String topic, int bytes, int messages, int pauseMicros, boolean threaded) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(0, 0);
        producer.partitionsFor(topic);
        TopicPartition partition = new TopicPartition(topic, 0);
        KafkaConsumer<byte[], byte[]> consumer = consumer(partition);
        long[] endToEnd = new long[messages];
        long[] acknowledged = new long[messages];
        long[] afterAck = new long[messages];
        Receiver receiver = threaded ? new ReceivingThread(consumer) : new ReceivingHere(consumer);
        try {
            for (int message = 0; message < messages; message++) {
                byte[] value = payload(bytes, message);
                ByteBuffer.wrap(value).putLong(message);
                long begin = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, null, value)).get(TIMEOUT_S, TimeUnit.SECONDS);
                long ack = System.nanoTime();
                long received = receiver.receive(message);
                endToEnd[message] = received - begin;
                acknowledged[message] = ack - begin;
                afterAck[message] = received - ack;
                if (pauseMicros > 0) {
                    TimeUnit.MICROSECONDS.sleep(pauseMicros);
                }
            }
        } finally {
            receiver.close();
        }
        return "{\"end_to_end_us\": " + micros(endToEnd) + ", \"ack_us\": " + micros(acknowledged)
                + ", \"after_ack_us\": " + micros(afterAck) + "}";
    }

    private static String micros(long[] nanos) {
        return Arrays.toString(Arrays.stream(nanos).mapToDouble(value -> value / 1000.0).toArray());
    }

    /** Takes one message off the consumer and says when it came. */
    private interface Receiver {
        long receive(long expected) throws Exception;

        void close() throws Exception;
    }

    private static long sequence(ConsumerRecord<byte[], byte[]> record) {
        return ByteBuffer.wrap(record.value()).getLong();
    }

    /** As Kafka's EndToEndLatency tool does: polls after the acknowledgement, on the same thread. */
    private static final class ReceivingHere implements Receiver {
        private final KafkaConsumer<byte[], byte[]> consumer;

        ReceivingHere(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        @Override
        public long receive(long expected) {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    long now = System.nanoTime();
                    if (sequence(record) != expected) {
                        throw new IllegalStateException("message " + sequence(record) + " instead of " + expected);
                    }
                    return now;
                }
            }
            throw new IllegalStateException("message " + expected + " never came");
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    /** The friendlier shape: a consumer that is already waiting at the broker when the message is produced. */
    private static final class ReceivingThread implements Receiver {
        private final SynchronousQueue<long[]> received = new SynchronousQueue<>();
        private volatile boolean stopped;
        private final Thread thread;

        ReceivingThread(KafkaConsumer<byte[], byte[]> consumer) {
            thread = new Thread(() -> {
                try (consumer) {
                    while (!stopped) {
                        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                            received.put(new long[] {System.nanoTime(), sequence(record)});
                        }
                    }
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            });
            thread.start();
        }

        @Override
        public long receive(long expected) throws Exception {
            long[] message = received.poll(TIMEOUT_S, TimeUnit.SECONDS);
            if (message == null || message[1] != expected) {
                throw new IllegalStateException("message " + expected + " never came");
            }
            return message[0];
        }

        @Override
        public void close() throws Exception {
            stopped = true;
            thread.join();
        }
    }
}
