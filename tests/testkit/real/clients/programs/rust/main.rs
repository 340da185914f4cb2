// Small programs around the crate rdkafka: numbered records, and a reader in a group. What they print and write down has
// the form of the Python programs' beside them (program.py). Usage: clients rdkafka producer|reader JSON
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::{json, Map, Value};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

const ERRORS_SHOWN_MAX: usize = 20;
const FLUSH_SECONDS_MAX: u64 = 300;
const ASK: Duration = Duration::from_secs(10);

/// Ends the program without a last line.
fn failed(why: impl std::fmt::Display) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}

fn finish(mut outcome: Value, ok: bool) -> ! {
    outcome["final"] = json!(true);
    println!("{outcome}");
    std::process::exit(if ok { 0 } else { 1 })
}

fn text<'a>(given: &'a Value, name: &str) -> &'a str {
    given[name].as_str().unwrap_or_else(|| failed(format!("{name} is not given")))
}

fn number(given: &Value, name: &str) -> i64 {
    given[name].as_i64().unwrap_or_else(|| failed(format!("{name} is not given")))
}

/// The settings that are given, over these.
fn configured(given: &Value, own: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", text(given, "bootstrap"));
    for (name, value) in own {
        config.set(*name, *value);
    }
    for (name, value) in given["settings"].as_object().unwrap_or(&Map::new()) {
        config.set(name, value.as_str().map_or_else(|| value.to_string(), str::to_string));
    }
    config
}

/// What became of the records.
#[derive(Default)]
struct Told {
    lines: String,
    last_offset: HashMap<i32, i64>,
    acked: i64,
    failures: i64,
    errors: Vec<String>,
    unknown: bool,
    out_of_order: bool,
}

impl Told {
    fn acknowledged(&mut self, partition: i32, number: usize, offset: i64) {
        let last = self.last_offset.insert(partition, offset).unwrap_or(-1);
        self.acked += 1;
        self.unknown |= offset < 0;
        self.out_of_order |= offset <= last;
        let _ = writeln!(self.lines, "{partition} {number} {offset}");
    }

    fn failed(&mut self, why: String) {
        self.failures += 1;
        if self.errors.len() < ERRORS_SHOWN_MAX {
            self.errors.push(why);
        }
    }
}

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Told>>);

impl ClientContext for Listener {
    // Broken connections are news, not failures: librdkafka tells of them and goes on. After a fatal error it does not.
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.0.lock().unwrap().failed(format!("{error}: {reason}"));
        }
    }
}

impl ProducerContext for Listener {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let mut told = self.0.lock().unwrap();
        match result {
            Ok(message) => told.acknowledged(message.partition(), number, message.offset()),
            Err((error, _)) => told.failed(error.to_string()),
        }
    }
}

fn producer(given: &Value) -> ! {
    let (topic, name) = (text(given, "topic"), text(given, "name"));
    let partitions = number(given, "partitions") as usize;
    let per_second = given["pace"]["records_per_second"].as_f64().unwrap_or(0.0);
    let until = given["pace"]["until_file"].as_str();
    let listener = Listener::default();
    let client: ThreadedProducer<Listener> = configured(given, &[("compression.codec", text(given, "compression"))])
        .create_with_context(listener.clone())
        .unwrap_or_else(|error| failed(error));
    let begun = Instant::now();
    let mut sent = 0;
    for index in 0..number(given, "records") as usize {
        if until.is_some_and(|path| Path::new(path).exists()) {
            break;
        }
        let (partition, place) = (index % partitions, index / partitions);
        let value = format!("{name}:{partition}:{place}");
        let mut headers = OwnedHeaders::new();
        for header in given["headers"].as_array().unwrap_or(&vec![]) {
            headers = headers.insert(Header { key: header.as_str().unwrap_or(""), value: Some(b"\x01") });
        }
        let mut record: BaseRecord<'_, (), str, usize> =
            BaseRecord::with_opaque_to(topic, place).partition(partition as i32).payload(&value);
        if given["headers"].as_array().is_some_and(|all| !all.is_empty()) {
            record = record.headers(headers);
        }
        sent += 1;
        while let Err((error, back)) = client.send(record) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                listener.0.lock().unwrap().failed(error.to_string());
                break;
            }
            record = back;
            sleep(Duration::from_millis(50));
        }
        if per_second > 0.0 {
            let due = begun + Duration::from_secs_f64(sent as f64 / per_second);
            sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    if let Err(error) = client.flush(Duration::from_secs(FLUSH_SECONDS_MAX)) {
        listener.0.lock().unwrap().failed(error.to_string());
    }
    let told = listener.0.lock().unwrap();
    std::fs::write(text(given, "told_file"), &told.lines).unwrap_or_else(|error| failed(error));
    let outcome = json!({
        "sent": sent, "acked": told.acked, "failed": told.failures, "errors": told.errors,
        "offsets_known": !told.unknown, "offsets_in_order": !told.out_of_order,
    });
    finish(outcome, told.failures == 0 && told.acked == sent)
}

/// Reads as a member of a group; any error of a fetch or a commit ends it.
fn reader(given: &Value) -> ! {
    let topic = text(given, "topic");
    let (group, wanted) = (text(given, "group"), number(given, "records"));
    let own = [("group.id", group), ("auto.offset.reset", "earliest"), ("enable.auto.commit", "false")];
    let client: BaseConsumer = configured(given, &own).create().unwrap_or_else(|error| failed(error));
    client.subscribe(&[topic]).unwrap_or_else(|error| failed(error));
    let end = Instant::now() + Duration::from_secs(number(given, "seconds_max") as u64);
    let (mut lines, mut records) = (String::new(), 0);
    while records < wanted && Instant::now() < end {
        match client.poll(Duration::from_millis(200)) {
            None => {}
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::BrokerTransportFailure))) => {}
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AllBrokersDown))) => {}
            Some(Err(error)) => failed(format!("an error reached the user: {error}")),
            Some(Ok(message)) => {
                records += 1;
                let value = String::from_utf8_lossy(message.payload().unwrap_or(b"")).into_owned();
                let _ = writeln!(lines, "{} {} {value}", message.partition(), message.offset());
            }
        }
    }
    std::fs::write(text(given, "records_file"), &lines).unwrap_or_else(|error| failed(error));
    client.commit_consumer_state(CommitMode::Sync).unwrap_or_else(|error| failed(error));
    let mut places = TopicPartitionList::new();
    for partition in 0..number(given, "partitions") {
        places.add_partition(topic, partition as i32);
    }
    let found = client.committed_offsets(places, ASK).unwrap_or_else(|error| failed(error));
    let committed: HashMap<String, i64> = (found.elements().iter())
        .map(|one| (one.partition().to_string(), if let Offset::Offset(at) = one.offset() { at } else { -1 }))
        .collect();
    finish(json!({"records": records, "committed": committed}), records == wanted)
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [client, role, told] = given.as_slice() else { failed("usage: clients rdkafka producer|reader JSON") };
    let told: Value = serde_json::from_str(told).unwrap_or_else(|error| failed(error));
    match (client.as_str(), role.as_str()) {
        ("rdkafka", "producer") => producer(&told),
        ("rdkafka", "reader") => reader(&told),
        _ => failed(format!("there is no {client} {role}")),
    }
}
