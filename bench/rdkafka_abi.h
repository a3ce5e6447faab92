/*
 * The part of librdkafka's C interface that rdperf uses. The library itself is the one inside the
 * confluent-kafka wheel, which ships no header; a distribution's header would be of another, older
 * release. The interface is stable across all releases with the name librdkafka.so.1.
 */
#ifndef BENCH_RDKAFKA_ABI_H
#define BENCH_RDKAFKA_ABI_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_mock_cluster_s rd_kafka_mock_cluster_t;
typedef struct rd_kafka_topic_partition_s rd_kafka_topic_partition_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef int rd_kafka_resp_err_t; /* 0 is success; a broker's error code, or negative for the client's own */

typedef struct rd_kafka_message_s {
    rd_kafka_resp_err_t err;
    rd_kafka_topic_t *topic;
    int32_t partition;
    void *payload;
    size_t payload_bytes;
    void *key;
    size_t key_bytes;
    int64_t offset;
    void *opaque;
} rd_kafka_message_t;

enum { RD_KAFKA_PRODUCER = 0, RD_KAFKA_CONSUMER = 1 };
enum { RD_KAFKA_CONF_OK = 0 };
enum { RD_KAFKA_ERROR_QUEUE_FULL = -184, RD_KAFKA_OFFSET_BEGINNING = -2 };

const char *rd_kafka_version_str(void);
const char *rd_kafka_err2str(rd_kafka_resp_err_t error);
rd_kafka_resp_err_t rd_kafka_last_error(void);

rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *conf, const char *name, const char *value, char *error, size_t error_bytes);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *conf,
                                 void (*delivered)(rd_kafka_t *, const rd_kafka_message_t *, void *opaque));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *conf, char *error, size_t error_bytes);
void rd_kafka_destroy(rd_kafka_t *client);
int rd_kafka_poll(rd_kafka_t *client, int timeout_ms);
int rd_kafka_outq_len(rd_kafka_t *client);

rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *client, const char *name, rd_kafka_topic_conf_t *conf);
void rd_kafka_topic_destroy(rd_kafka_topic_t *topic);
int rd_kafka_produce(rd_kafka_topic_t *topic, int32_t partition, int flags, void *payload, size_t payload_bytes,
                     const void *key, size_t key_bytes, void *opaque);

rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int capacity);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *list);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *list,
                                                              const char *topic, int32_t partition);
rd_kafka_resp_err_t rd_kafka_topic_partition_list_set_offset(rd_kafka_topic_partition_list_t *list,
                                                             const char *topic, int32_t partition, int64_t offset);
rd_kafka_resp_err_t rd_kafka_assign(rd_kafka_t *client, const rd_kafka_topic_partition_list_t *partitions);
rd_kafka_resp_err_t rd_kafka_poll_set_consumer(rd_kafka_t *client);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *client);
void rd_kafka_queue_destroy(rd_kafka_queue_t *queue);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *queue, int timeout_ms, rd_kafka_message_t **messages,
                                     size_t capacity);
void rd_kafka_message_destroy(rd_kafka_message_t *message);

rd_kafka_mock_cluster_t *rd_kafka_mock_cluster_new(rd_kafka_t *client, int brokers);
void rd_kafka_mock_cluster_destroy(rd_kafka_mock_cluster_t *cluster);
const char *rd_kafka_mock_cluster_bootstraps(const rd_kafka_mock_cluster_t *cluster);
rd_kafka_resp_err_t rd_kafka_mock_topic_create(rd_kafka_mock_cluster_t *cluster, const char *topic, int partitions,
                                               int replication_factor);
#endif
