import sys
from confluent_kafka import Consumer, KafkaError, OFFSET_BEGINNING, TopicPartition

topic, settings = sys.argv[1], dict(line.split("=", 1) for line in sys.argv[2].split("\n") if line)
settings.update({"group.id": "read-back", "enable.auto.commit": False, "enable.partition.eof": True})
consumer = Consumer(settings)
found = consumer.list_topics(topic, timeout=30).topics[topic]
if found.error:
    sys.exit(str(found.error))
left = set(found.partitions)
consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
out = sys.stdout.buffer
with_headers = sys.argv[3] == "true"


def write(numbers, first, second):
    lengths = [-1 if x is None else len(x) for x in (first, second)]
    out.write(b"%s%d %d\n%s%s\n" % (numbers, *lengths, first or b"", second or b""))


while left:
    for m in consumer.consume(1000, timeout=0.5):
        if m.error():
            if m.error().code() != KafkaError._PARTITION_EOF:
                sys.exit(str(m.error()))
            left.discard(m.partition())
            continue
        key, value = m.key(), m.value()
        place = b"%d %d " % (m.partition(), m.offset())
        headers = (m.headers() or []) if with_headers else []
        write(place + (b"%d " % len(headers) if with_headers else b""), key, value)
        for name, text in headers:
            write(b"", name.encode(), text)
consumer.close()
