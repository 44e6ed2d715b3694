//! NvtxRanges that programs and libraries name: NVTX.

use std::collections::{BTreeMap, HashMap};

use super::{
    super::{
        profile::NamedRange,
        sqlite::{Database, Row, TableColumn},
    },
    activities::Ranks,
    nccl::{self, NcclRanges},
    payload::{Payload, PayloadSchemas},
    process::{Process, thread},
    texts::text,
};

pub(super) const RANGES: &str = "NVTX_EVENTS";

/// The numbers of `ENUM_NSYS_EVENT_TYPE`: ranges of a thread, and those that may end on another one; of NVTX, and of files
/// with its events.
const PUSH_POP: [i64; 2] = [59, 70];
const START_END: [i64; 2] = [60, 71];
const DOMAIN_CREATE: i64 = 75;

/// How many domains are told apart.
const MOST_DOMAINS: usize = 1 << 12;

/// What a range says of itself.
const COLUMNS: [TableColumn<'static>; 11] = [
    TableColumn::Value("start"),
    TableColumn::Value("end"),
    TableColumn::Value("eventType"),
    TableColumn::Value("globalTid"),
    TableColumn::Value("endGlobalTid"),
    TableColumn::Value("domainId"),
    TableColumn::Value("text"),
    text("textId"),
    TableColumn::Value("jsonText"),
    text("jsonTextId"),
    TableColumn::Value("binaryData"),
];

/// What ranges say besides what they are called.
#[derive(Default)]
pub(super) struct NvtxRanges {
    /// What NCCL says in each process.
    pub(super) nccl: HashMap<Process, NcclRanges>,
    /// NvtxRanges that had not ended when the session did.
    pub(super) open: u64,
    /// How many there are in each process, whether it is a rank or not.
    pub(super) counts: BTreeMap<Process, u64>,
}

impl NvtxRanges {
    /// Reads all ranges into the ranks of their processes.
    pub(super) fn of(database: &mut Database, ranks: &mut Ranks) -> NvtxRanges {
        let (domains, schemas) = (domains(database), PayloadSchemas::of(database));
        let mut ranges = NvtxRanges::default();
        database.scan(RANGES, &COLUMNS, |row| ranges.take(row, &domains, &schemas, ranks));
        for rank in ranks.all.values_mut() {
            std::mem::take(&mut rank.ranges).number_steps(&mut rank.profile);
        }
        ranges.nccl = ranges.nccl.into_iter().map(|(process, told)| (process, told.in_order())).collect();
        ranges
    }

    fn take(
        &mut self,
        row: &Row<'_>,
        domains: &HashMap<(Process, i64), String>,
        schemas: &PayloadSchemas,
        ranks: &mut Ranks,
    ) {
        let is_range = row.integer(2).is_none_or(|kind| PUSH_POP.contains(&kind) || START_END.contains(&kind));
        let Some(global) = row.integer(3).filter(|_| is_range) else { return };
        if row.integer(1).is_none() {
            self.open += 1;
            return;
        }
        let Some((start, duration)) = row.times(0, 1) else {
            ranks.unreadable += 1;
            return;
        };
        let process = Process::of(global);
        *self.counts.entry(process).or_default() += 1;
        let is_of_thread = row.integer(4).is_none_or(|end| end == global);
        let range = NamedRange { thread: is_of_thread.then(|| thread(global)), start, duration };
        let text = row.text(6).or_else(|| row.text(7));
        let text = text.as_deref().unwrap_or("(range without a name)");
        let Some(domain) = row.integer(5).and_then(|domain| domains.get(&(process, domain))) else {
            ranks.of_process(process).for_each(|rank| rank.ranges.take(&mut rank.profile, range, text));
            return;
        };
        if domain == nccl::DOMAIN {
            let payload = match row.text(8).or_else(|| row.text(9)) {
                Some(text) => Payload::of_json(&text),
                None => row.bytes(10).map_or_else(Payload::default, |bytes| schemas.payload(bytes)),
            };
            let told = self.nccl.entry(process).or_default();
            told.take(text, thread(global), start, start + duration, payload);
        }
        let shown = format!("{domain}:{text}");
        ranks.of_process(process).for_each(|rank| rank.ranges.annotate(&mut rank.profile, range, text, &shown));
    }
}

/// What domains are called in each process. The one without a name has the number 0.
fn domains(database: &mut Database) -> HashMap<(Process, i64), String> {
    let mut domains = HashMap::new();
    let columns = [
        TableColumn::Value("eventType"),
        TableColumn::Value("globalTid"),
        TableColumn::Value("domainId"),
        TableColumn::Value("text"),
        text("textId"),
    ];
    database.scan(RANGES, &columns, |row| {
        if row.integer(0) != Some(DOMAIN_CREATE) || domains.len() >= MOST_DOMAINS {
            return;
        }
        let Some((global, domain)) = row.integer(1).zip(row.integer(2)) else { return };
        if let Some(name) = row.text(3).or_else(|| row.text(4)) {
            domains.insert((Process::of(global), domain), name.into_owned());
        }
    });
    domains
}
