use rusqlite::params;

use crate::export::{BEGAN, Export};

/// Two GPUs that CUDA numbers the other way round, with a rank on each, and the tables of samples.
fn export() -> Export {
    let export = Export::new();
    export
        .database
        .execute_batch(
            "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL,
                typeName TEXT NOT NULL, metricId INTEGER NOT NULL, metricName TEXT NOT NULL);
             CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL,
                value INTEGER NOT NULL);
             INSERT INTO TARGET_INFO_GPU VALUES (0, 1, 'NVIDIA H100', 80000000000, '', 0, ''), (0, 0, 'NVIDIA H100', 80000000000, '', 1, '');",
        )
        .unwrap();
    for (pid, device) in [(10, 0), (11, 1)] {
        export.kernel(pid, device, "gemm", 10, 90);
    }
    export
}

/// The number of a GPU's samples.
fn kind(gpu: i64) -> i64 {
    281_474_976_710_656 | gpu
}

fn metric(export: &Export, gpu: i64, id: i64, name: &str, samples: &[(i64, i64)]) {
    export.run("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?1, 0, 'GPU', ?2, ?3)", params![kind(gpu), id, name]);
    for (time, value) in samples {
        export.run("INSERT INTO GPU_METRICS VALUES (?1, ?2, ?3, ?4)", params![time, kind(gpu), id, value]);
    }
}

#[test]
fn metrics_are_counters_of_the_ranks_on_their_gpu() {
    let export = export();
    metric(&export, 1, 7, "SMs Active [Throughput %]", &[(20, 90), (30, 80)]);
    metric(&export, 1, 8, "Tensor Active [Throughput %]", &[(20, 50)]);
    metric(&export, 1, 9, "DRAM Read Bandwidth [Throughput %]", &[(20, 11)]);
    metric(&export, 1, 10, "DRAM Write Bandwidth [Throughput %]", &[(20, 4)]);
    metric(&export, 1, 11, "Compute Warps in Flight [Throughput %]", &[(20, 33)]);
    metric(&export, 1, 12, "Compute Warps in Flight [Avg]", &[(20, 2_000)]);
    metric(&export, 0, 7, "SMs Active [Throughput %]", &[(20, 1)]);
    let sampled = |rank: usize| {
        let (data, _) = export.rank(rank);
        let samples = data.counters.rows();
        samples
            .map(|sample| {
                let name = data.names.counter(sample.counter).unwrap().to_owned();
                (sample.time_ns.0 - BEGAN, name, sample.value)
            })
            .collect::<Vec<_>>()
    };
    let sample = |time: i64, name: &str, value: f64| (time, name.to_owned(), value);
    assert_eq!(
        sampled(0),
        [
            sample(20, "gpu.sm_activity", 90.0),
            sample(20, "gpu.tensor_activity", 50.0),
            sample(20, "gpu.sm_occupancy", 33.0),
            sample(20, "gpu.dram_activity", 15.0),
            sample(30, "gpu.sm_activity", 80.0),
        ]
    );
    assert_eq!(sampled(1), [sample(20, "gpu.sm_activity", 1.0)]);
    assert_eq!(export.open().ranks[0].info.collector.failed_sources, None);
}

#[test]
fn metrics_that_are_not_read_are_named() {
    let export = export();
    metric(&export, 0, 7, "PCIe RX Throughput [Throughput %]", &[(20, 1), (30, 2)]);
    let missing = export.open().ranks[0].info.collector.failed_sources.clone().unwrap();
    assert_eq!(
        missing.0["GPU metrics"],
        "not read; the export has 2 samples, none of SM, tensor core or DRAM activity"
    );
}
