// Small programs around the crate kafka 0.10: numbered records, and a reader that commits a group's offsets. What they
// print and write down has the form of the Python programs' beside them (program.py). Usage: clients producer|reader JSON
use kafka::client::{Compression, FetchOffset, GroupOffsetStorage, RequiredAcks};
use kafka::consumer::Consumer;
use kafka::producer::{Producer, Record};
use serde_json::{json, Map, Value};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const RECORDS_AT_ONCE: i64 = 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the program without a last line.
fn failed(why: impl std::fmt::Debug) -> ! {
    eprintln!("{why:?}");
    std::process::exit(2)
}

fn finish(mut outcome: Value, ok: bool) -> ! {
    outcome["final"] = json!(true);
    println!("{outcome}");
    std::process::exit(if ok { 0 } else { 1 })
}

fn text<'a>(given: &'a Value, name: &str) -> &'a str {
    given[name].as_str().unwrap_or_else(|| failed(name))
}

fn number(given: &Value, name: &str) -> i64 {
    given[name].as_i64().unwrap_or_else(|| failed(name))
}

fn hosts(given: &Value) -> Vec<String> {
    text(given, "bootstrap").split(',').map(str::to_string).collect()
}

fn producer(given: &Value) -> ! {
    let (topic, name) = (text(given, "topic"), text(given, "name"));
    let partitions = number(given, "partitions");
    let each = number(given, "records") / partitions;
    let compression = match text(given, "compression") {
        "none" => Compression::NONE,
        "gzip" => Compression::GZIP,
        "snappy" => Compression::SNAPPY,
        other => failed(other),
    };
    let mut client = Producer::from_hosts(hosts(given))
        .with_compression(compression)
        .with_ack_timeout(PATIENCE)
        .with_required_acks(RequiredAcks::All)
        .create()
        .unwrap_or_else(|error| failed(error));
    let (mut lines, mut acked, mut errors) = (String::new(), 0, vec![]);
    for first in (0..each).step_by(RECORDS_AT_ONCE as usize) {
        for partition in 0..partitions {
            let numbers: Vec<i64> = (first..each.min(first + RECORDS_AT_ONCE)).collect();
            let values: Vec<String> = numbers.iter().map(|one| format!("{name}:{partition}:{one}")).collect();
            let records: Vec<_> = (values.iter())
                .map(|value| Record::from_value(topic, value.as_bytes()).with_partition(partition as i32))
                .collect();
            let answers = match client.send_all(&records) {
                Ok(answers) => answers,
                Err(error) => {
                    errors.push(format!("{error:?}"));
                    continue;
                }
            };
            for one in answers.iter().flat_map(|answer| &answer.partition_confirms) {
                match one.offset {
                    Ok(offset) => {
                        for (at, place) in numbers.iter().enumerate() {
                            acked += 1;
                            let _ = writeln!(lines, "{partition} {place} {}", offset + at as i64);
                        }
                    }
                    Err(code) => errors.push(format!("{code:?}")),
                }
            }
        }
    }
    std::fs::write(text(given, "told_file"), &lines).unwrap_or_else(|error| failed(error));
    let ok = errors.is_empty() && acked == each * partitions;
    finish(json!({"sent": each * partitions, "acked": acked, "failed": errors.len(), "errors": errors}), ok)
}

fn reader(given: &Value) -> ! {
    let (topic, group) = (text(given, "topic"), given["group"].as_str());
    let wanted = number(given, "records");
    let mut making =
        Consumer::from_hosts(hosts(given)).with_topic(topic.to_string()).with_fallback_offset(FetchOffset::Earliest);
    if let Some(group) = group {
        making = making.with_group(group.to_string()).with_offset_storage(Some(GroupOffsetStorage::Kafka));
    }
    let mut client = making.create().unwrap_or_else(|error| failed(error));
    let end = Instant::now() + Duration::from_secs(number(given, "seconds_max") as u64);
    let (mut lines, mut records) = (String::new(), 0);
    while records < wanted && Instant::now() < end {
        let sets = client.poll().unwrap_or_else(|error| failed(error));
        for set in sets.iter() {
            for message in set.messages() {
                records += 1;
                let value = String::from_utf8_lossy(message.value);
                let _ = writeln!(lines, "{} {} {value}", set.partition(), message.offset);
            }
            if group.is_some() {
                client.consume_messageset(set).unwrap_or_else(|error| failed(error));
            }
        }
    }
    std::fs::write(text(given, "records_file"), &lines).unwrap_or_else(|error| failed(error));
    let mut committed = Map::new();
    if let Some(group) = group {
        client.commit_consumed().unwrap_or_else(|error| failed(error));
        let found = client.client_mut().fetch_group_topic_offset(group, topic).unwrap_or_else(|error| failed(error));
        committed = found.iter().map(|one| (one.partition.to_string(), json!(one.offset))).collect();
    }
    finish(json!({"records": records, "committed": committed}), records == wanted)
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [role, told] = given.as_slice() else { failed("usage: clients producer|reader JSON") };
    let told: Value = serde_json::from_str(told).unwrap_or_else(|error| failed(error));
    match role.as_str() {
        "producer" => producer(&told),
        "reader" => reader(&told),
        other => failed(other),
    }
}
