// A small program around rskafka 0.6, which has no idempotence: numbered records. What it prints and writes down has the
// form of the Python programs' beside it (program.py). Usage: clients producer JSON
use chrono::Utc;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;
use rskafka::BackoffConfig;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const ERRORS_SHOWN_MAX: usize = 20;

/// Ends the program without a last line.
fn failed(why: impl std::fmt::Display) -> ! {
    eprintln!("{why}");
    std::process::exit(2)
}

fn text<'a>(given: &'a Value, name: &str) -> &'a str {
    given[name].as_str().unwrap_or_else(|| failed(format!("{name} is not given")))
}

fn number(given: &Value, name: &str) -> u64 {
    given[name].as_u64().unwrap_or_else(|| failed(format!("{name} is not given")))
}

fn codec(given: &Value) -> Compression {
    match text(given, "compression") {
        "none" => Compression::NoCompression,
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        other => failed(format!("there is no {other}")),
    }
}

/// What became of the records of a partition.
#[derive(Default)]
struct Told {
    lines: String,
    acked: u64,
    failures: u64,
    errors: Vec<String>,
    unknown: bool,
    out_of_order: bool,
}

/// Sends so many records, one request at a time; the client itself sends again what got no answer.
async fn send(to: PartitionClient, given: Arc<Value>, records: u64) -> Told {
    let at_once = number(&given["settings"], "records_at_once");
    let headers: BTreeMap<String, Vec<u8>> = (given["headers"].as_array().into_iter().flatten())
        .filter_map(|name| Some((name.as_str()?.to_string(), vec![1])))
        .collect();
    let (mut told, mut last) = (Told::default(), -1);
    for first in (0..records).step_by(at_once as usize) {
        let numbers = first..records.min(first + at_once);
        let batch: Vec<Record> = (numbers.clone())
            .map(|place| Record {
                key: None,
                value: Some(format!("{}:{}:{place}", text(&given, "name"), to.partition()).into_bytes()),
                headers: headers.clone(),
                timestamp: Utc::now(),
            })
            .collect();
        match to.produce(batch, codec(&given)).await {
            Ok(offsets) => {
                for (place, offset) in numbers.zip(offsets) {
                    told.acked += 1;
                    told.unknown |= offset < 0;
                    told.out_of_order |= offset <= last;
                    last = offset;
                    let _ = writeln!(told.lines, "{} {place} {offset}", to.partition());
                }
            }
            Err(error) => {
                told.failures += numbers.end - numbers.start;
                told.errors.push(error.to_string());
            }
        }
    }
    told
}

async fn producer(given: Arc<Value>) -> ! {
    let (records, partitions) = (number(&given, "records"), number(&given, "partitions"));
    let patience = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_millis(500),
        base: 2.0,
        deadline: Some(Duration::from_secs(number(&given["settings"], "delivery_seconds"))),
    };
    let brokers = text(&given, "bootstrap").split(',').map(str::to_string).collect();
    let client = ClientBuilder::new(brokers).backoff_config(patience).build().await.unwrap_or_else(|error| failed(error));
    let mut running = vec![];
    for partition in 0..partitions {
        let to = (client.partition_client(text(&given, "topic"), partition as i32, UnknownTopicHandling::Retry).await)
            .unwrap_or_else(|error| failed(error));
        let share = (records + partitions - 1 - partition) / partitions;
        running.push(tokio::spawn(send(to, given.clone(), share)));
    }
    let mut all = Told::default();
    for one in running {
        let told = one.await.unwrap_or_else(|error| failed(error));
        all.lines += &told.lines;
        all.acked += told.acked;
        all.failures += told.failures;
        all.errors.extend(told.errors);
        all.unknown |= told.unknown;
        all.out_of_order |= told.out_of_order;
    }
    all.errors.truncate(ERRORS_SHOWN_MAX);
    std::fs::write(text(&given, "told_file"), &all.lines).unwrap_or_else(|error| failed(error));
    let outcome = json!({
        "sent": records, "acked": all.acked, "failed": all.failures, "errors": all.errors,
        "offsets_known": !all.unknown, "offsets_in_order": !all.out_of_order, "final": true,
    });
    println!("{outcome}");
    std::process::exit(if all.failures == 0 && all.acked == records { 0 } else { 1 })
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [role, told] = given.as_slice() else { failed("usage: clients producer JSON") };
    let told: Value = serde_json::from_str(told).unwrap_or_else(|error| failed(error));
    if role != "producer" {
        failed(format!("there is no {role}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|error| failed(error));
    runtime.block_on(producer(Arc::new(told)))
}
