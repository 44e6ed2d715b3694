use std::fs;

use rusqlite::params;
use stepscope_traces::{Run, State, Window};

use crate::{
    export::{Export, activities, global},
    fuzz::fuzz,
    reads::Reads,
};

/// A small export with something in every table.
fn export() -> Export {
    let export = Export::new();
    export.run("INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'NVIDIA H100 80GB HBM3', 80000, 'uuid', 0, '')", []);
    export.run("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 10, NULL)", []);
    export.run("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, '', 'Hostname', 1, 'node7')", []);
    let autograd = export.text("pt_autograd_0");
    export.run("INSERT INTO ThreadNames VALUES (?1, NULL, ?2)", params![autograd, global(10, 33)]);
    let domain = "INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid, domainId) VALUES (0, 75, 'NCCL', ?1, 1)";
    export.run(domain, [global(10, 10)]);
    let payload = export.text("{\"NCCL communicator ID\":7,\"Message size [bytes]\":8,\"No. of ranks\":2,\"Rank\":0}");
    let all_reduce = export.text("ncclAllReduce");
    for step in 0..20 {
        let at = step * 1_000;
        export.range(10, 10, &format!("step {step}"), at, at + 1_000);
        export.range(10, 10, "aten::mm, op_id = 7, sizes = [[4, 8], [8, 4]]", at + 5, at + 20);
        export.kernel(10, 0, "void gemm<float>(int)", at + 10, at + 300);
        export.run(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, textId, globalTid, domainId, jsonTextId)
                VALUES (?1, ?2, 59, ?3, ?4, 1, ?5)",
            params![at + 400, at + 420, all_reduce, global(10, 10), payload],
        );
        export.kernel(10, 0, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", at + 410, at + 600);
        let copy = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?1, ?1 + 5, 0, 1, 7, NULL, ?2, 64, 1, 1, 2)";
        export.run(copy, [at + 700, global(10, 0)]);
        let set = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?1, ?1 + 5, 0, 1, 7, NULL, ?2, 0, 64, 2)";
        export.run(set, [at + 800, global(10, 0)]);
    }
    export
}

#[test]
fn fuzzed_exports() {
    let (export, reads) = (export(), Reads::named("damaged.sqlite"));
    fuzz!(vec![fs::read(export.path()).unwrap()], |bytes: &[u8]| reads.read(bytes));
}

#[test]
fn what_lies_before_damage_is_read_and_what_is_lost_is_said() {
    let export = Export::new();
    for kernel in 0..2_000 {
        export.kernel(10, 0, "kernel", kernel * 10 + 2, kernel * 10 + 8);
    }
    let mut bytes = fs::read(export.path()).unwrap();
    let root: i64 = export
        .database
        .query_row("SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'", [], |row| row.get(0))
        .unwrap();
    // The root of the table has the numbers of its pages; the last of those that it lists leads nowhere.
    let page = (root as usize - 1) * 4096;
    assert_eq!(bytes[page], 5, "a page that leads to others");
    bytes[page + 8..page + 12].copy_from_slice(&u32::MAX.to_be_bytes());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.sqlite");
    fs::write(&path, &bytes).unwrap();
    let run = Run::of_source(&path).unwrap();
    assert_eq!(run.state(), State::Interrupted);
    let reason = run.ranks[0].info.reason.as_deref().unwrap();
    assert!(reason.starts_with("it is damaged: table CUPTI_ACTIVITY_KIND_KERNEL: "), "{reason}");
    let (data, loss) = run.ranks[0].read(Window::ALL).unwrap();
    let kept = activities(&data).len();
    assert!(kept > 1_000 && kept < 2_000, "{kept}");
    assert_eq!(loss.unreadable_bytes, 1);
}

#[test]
fn rows_that_cannot_be_are_counted() {
    let export = Export::new();
    let kernel = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, 1, 1)";
    let (name, pid) = (export.text("kernel"), global(10, 0));
    export.run(kernel, params![10, 20, 0, 7, 1, pid, name]);
    // Ends before it begins, never ends, begins before all time and ends after it, is on a device that cannot be.
    export.run(kernel, params![20, 10, 0, 7, 1, pid, name]);
    export.run(kernel, params![i64::MAX, i64::MAX, 0, 7, 1, pid, name]);
    export.run(kernel, params![i64::MIN, i64::MAX, 0, 7, 1, pid, name]);
    export.run(kernel, params![10, 20, -5, 7, 1, pid, name]);
    export.run(kernel, params!["text", 20, 0, 7, 1, pid, name]);
    // What it says besides is wrong, or so late that it is beyond the last time of day.
    export.run(kernel, params![30, 40, 0, -7, -1, pid, 999_999]);
    export.run(kernel, params![i64::MAX - 10, i64::MAX - 5, 0, 7, 1, pid, name]);
    let (data, loss) = export.rank(0);
    assert_eq!(activities(&data).len(), 2);
    assert_eq!(loss.unreadable_events, 6);
}
