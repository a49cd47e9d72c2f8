use super::*;

fn joined(nodes: &[&str]) -> String {
    let frames: Vec<Vec<u8>> = nodes
        .iter()
        .map(|node| {
            let mut frame = Vec::new();
            encode::bulk(&mut frame, node.replace('\n', "\r\n").as_bytes());
            frame
        })
        .collect();
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let frame = join(&frames).unwrap();
    String::from_utf8(text(&frame).unwrap().to_vec()).unwrap().replace("\r\n", "\n")
}

#[test]
fn one_server_is_told_section_by_section() {
    let first = "\
# Server
redis_version:7.0.15
redis_mode:cluster
uptime_in_seconds:13

# Clients
connected_clients:1
maxclients:10000
client_recent_max_input_buffer:20480

# Memory
used_memory:925808
used_memory_human:904.11K
used_memory_rss:7155712
used_memory_peak:961920
used_memory_peak_perc:96.25%
used_memory_startup:876264
used_memory_dataset:27072
used_memory_dataset_perc:54.64%
total_system_memory:25276518400
total_system_memory_human:23.54G
maxmemory:0
maxmemory_human:0B
maxmemory_policy:noeviction
mem_fragmentation_ratio:7.75
mem_allocator:jemalloc-5.3.0

# Persistence
loading:0
rdb_last_save_time:1794741708
rdb_last_bgsave_status:ok

# Stats
total_commands_processed:10
instantaneous_input_kbps:0.04
keyspace_hits:3
expired_stale_perc:0.00

# Replication
role:master
connected_slaves:1

# CPU
used_cpu_sys:0.011279

# Modules
module:name=a,ver=1
module:name=b,ver=2

# Commandstats
cmdstat_get:calls=2,usec=10,usec_per_call=5.00,rejected_calls=0,failed_calls=1

# Errorstats
errorstat_ERR:count=1

# Latencystats
latency_percentiles_usec_get:p50=1.003,p99=45.055

# Cluster
cluster_enabled:1

# Keyspace
db0:keys=10,expires=1,avg_ttl=1000
";
    let second = "\
# Server
redis_version:7.2.0
redis_mode:cluster
uptime_in_seconds:99

# Clients
connected_clients:2
maxclients:10000
client_recent_max_input_buffer:8

# Memory
used_memory:1048576
used_memory_human:1.00M
used_memory_rss:2097152
used_memory_peak:1048576
used_memory_peak_perc:100.00%
used_memory_startup:876264
used_memory_dataset:200000
used_memory_dataset_perc:99.00%
total_system_memory:25276518400
total_system_memory_human:23.54G
maxmemory:100
maxmemory_human:100B
maxmemory_policy:noeviction
mem_fragmentation_ratio:2.00
mem_allocator:libc

# Persistence
loading:1
rdb_last_save_time:1794741700
rdb_last_bgsave_status:err

# Stats
total_commands_processed:32
instantaneous_input_kbps:1.10
keyspace_hits:4
expired_stale_perc:5.00

# Replication
role:master
connected_slaves:1
slave0:ip=127.0.0.1,port=1,state=online,offset=1,lag=1

# CPU
used_cpu_sys:1.000001

# Modules

# Commandstats
cmdstat_get:calls=2,usec=20,usec_per_call=10.00,rejected_calls=1,failed_calls=0
cmdstat_set:calls=1,usec=7,usec_per_call=7.00,rejected_calls=0,failed_calls=0

# Errorstats
errorstat_ERR:count=2
errorstat_MOVED:count=5

# Latencystats
latency_percentiles_usec_get:p50=2.007,p99=30.000

# Cluster
cluster_enabled:1

# Keyspace
db0:keys=5,expires=3,avg_ttl=3000
";
    let whole = "\
# Server
redis_version:7.0.15
redis_mode:standalone
uptime_in_seconds:13

# Clients
connected_clients:3
maxclients:20000
client_recent_max_input_buffer:20480

# Memory
used_memory:1974384
used_memory_human:1.88M
used_memory_rss:9252864
used_memory_peak:2010496
used_memory_peak_perc:98.20%
used_memory_startup:1752528
used_memory_dataset:227072
used_memory_dataset_perc:102.35%
total_system_memory:25276518400
total_system_memory_human:23.54G
maxmemory:0
maxmemory_human:0B
maxmemory_policy:noeviction
mem_fragmentation_ratio:4.69
mem_allocator:jemalloc-5.3.0

# Persistence
loading:1
rdb_last_save_time:1794741700
rdb_last_bgsave_status:err

# Stats
total_commands_processed:42
instantaneous_input_kbps:1.14
keyspace_hits:7
expired_stale_perc:0.00

# Replication
role:master
connected_slaves:1

# CPU
used_cpu_sys:1.011280

# Modules
module:name=a,ver=1
module:name=b,ver=2

# Commandstats
cmdstat_get:calls=4,usec=30,usec_per_call=7.50,rejected_calls=1,failed_calls=1
cmdstat_set:calls=1,usec=7,usec_per_call=7.00,rejected_calls=0,failed_calls=0

# Errorstats
errorstat_ERR:count=3
errorstat_MOVED:count=5

# Latencystats
latency_percentiles_usec_get:p50=2.007,p99=45.055

# Cluster
cluster_enabled:1

# Keyspace
db0:keys=15,expires=4,avg_ttl=2500
";
    assert_eq!(joined(&[first, second]), whole);
}

#[test]
fn one_node_keeps_every_word_but_the_mode() {
    let node = "# Server\nredis_mode:cluster\n\n# Memory\nused_memory_human:904.11K\n\n# Cluster\n";
    let whole = node.replace("mode:cluster", "mode:standalone");
    assert_eq!(joined(&[node]), whole);
    assert_eq!(joined(&[""]), "");
}

#[test]
fn a_database_that_the_first_node_has_not_is_told_in_its_place() {
    let whole = joined(&[
        "# Keyspace\ndb10:keys=1,expires=0,avg_ttl=0\n",
        "# Keyspace\ndb2:keys=2,expires=0,avg_ttl=0\ndb10:keys=2,expires=0,avg_ttl=0\n",
    ]);
    let expected = "# Keyspace\ndb2:keys=2,expires=0,avg_ttl=0\ndb10:keys=3,expires=0,avg_ttl=0\n";
    assert_eq!(whole, expected);
    let whole = joined(&["# Keyspace\n", "# Keyspace\ndb0:keys=2,expires=0,avg_ttl=0\n"]);
    assert_eq!(whole, "# Keyspace\ndb0:keys=2,expires=0,avg_ttl=0\n");
}

#[test]
fn what_is_no_number_stays_the_first_ones() {
    assert_eq!(joined(&["used_memory:x\n", "used_memory:1\n"]), "used_memory:x\n");
    assert_eq!(joined(&["nonsense\n", "nonsense\n"]), "");
}

#[test]
fn the_kind_of_string_stays() {
    let node = b"=36\r\ntxt:# Clients\r\nconnected_clients:1\r\n\r\n";
    let whole = b"=36\r\ntxt:# Clients\r\nconnected_clients:2\r\n\r\n";
    assert_eq!(join(&[node, node]).as_deref(), Some(&whole[..]));
    assert_eq!(join(&[b"*0\r\n"]), None);
}

#[test]
fn bytes_for_people() {
    let node = |bytes: u64| format!("used_memory:{bytes}\nused_memory_human:?\n");
    for (bytes, human) in [
        (500, "1000B"),
        (512, "1.00K"),
        (786_432, "1.50M"),
        (1 << 40, "2.00T"),
        (1 << 59, "1024.00P"),
    ] {
        let whole = joined(&[&node(bytes), &node(bytes)]);
        assert_eq!(whole, format!("used_memory:{}\nused_memory_human:{human}\n", bytes * 2));
    }
}
