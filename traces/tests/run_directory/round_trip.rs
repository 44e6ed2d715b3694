use std::{
    fs::{self, File},
    io::Write,
};

use proptest::prelude::*;
use stepscope_traces::{Nanos, Rank, RankData, Run, State, Window};

use crate::events::{Rows, WrittenRun, calls, read};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_is_read(calls in calls()) {
        let run = WrittenRun::of(&calls);
        let (data, loss) = run.read();
        prop_assert_eq!(Rows::of(&data), run.written);
        prop_assert!(loss.is_none());
        prop_assert_eq!(Run::open(&run.path).unwrap().state(), State::Complete);
    }

    /// The borders are times of events, where it matters which side of them an event is on.
    #[test]
    fn a_window_is_a_part_of_the_whole(calls in calls(), one in any::<prop::sample::Index>(), two in any::<prop::sample::Index>()) {
        let run = WrittenRun::of(&calls);
        let times = run.written.times();
        let (from, to) = (times[one.index(times.len())], times[two.index(times.len())]);
        let window = Window { from: from.min(to), to: to.max(from) };
        let (data, loss) = read(&run.path, window);
        prop_assert_eq!(Rows::of(&data), run.written.within(window));
        prop_assert!(loss.is_none());
    }

    /// The files grow as a recorder would let them, only at worse moments; in some a byte is damaged.
    #[test]
    fn a_follower_reads_what_a_reader_reads(
        calls in calls(),
        cuts in proptest::collection::vec(0.0..1.0_f64, 0..12),
        damage in proptest::option::of((0.0..1.0_f64, 1..=255_u8)),
    ) {
        let run = WrittenRun::of(&calls);
        if let Some((place, flip)) = damage {
            let mut bytes = fs::read(run.spans_file()).unwrap();
            let place = (place * bytes.len() as f64) as usize;
            bytes[place] ^= flip;
            fs::write(run.spans_file(), bytes).unwrap();
        }
        let (whole, whole_loss) = run.read();

        let growing = tempfile::tempdir().unwrap();
        let rank = growing.path().join("rank-00000");
        fs::create_dir(&rank).unwrap();
        for file in ["run.json", "rank-00000/rank.json"] {
            fs::copy(run.path.join(file), growing.path().join(file)).unwrap();
        }
        let followed = Run::open(growing.path()).unwrap();
        let mut follower = followed.rank(Rank(0)).unwrap().follow().unwrap();
        let mut data = RankData::default();
        let mut cuts = cuts;
        cuts.sort_by(f64::total_cmp);
        for cut in cuts.into_iter().chain([1.0]) {
            for table in ["strings.arrows", "spans.arrows", "memory.arrows", "counters.arrows"] {
                let bytes = fs::read(run.rank().join(table)).unwrap();
                let have = fs::metadata(rank.join(table)).map_or(0, |metadata| metadata.len() as usize);
                let upto = ((bytes.len() as f64 * cut) as usize).max(have);
                let mut file = File::options().append(true).create(true).open(rank.join(table)).unwrap();
                file.write_all(&bytes[have..upto]).unwrap();
            }
            follower.poll(&mut data).unwrap();
        }
        follower.finish(&mut data);
        prop_assert_eq!(Rows::of(&data), Rows::of(&whole));
        let rank = followed.rank(Rank(0)).unwrap();
        prop_assert_eq!(follower.loss(&rank.info, rank.state), whole_loss);
    }
}

#[test]
fn more_rows_than_a_batch_holds_are_read() {
    let run = WrittenRun::numbered(1, 40_000);
    let (data, loss) = run.read();
    assert_eq!(crate::events::numbers(&data), (0..40_000).collect::<Vec<_>>());
    assert!(loss.is_none());
}

#[test]
fn a_survey_counts_what_a_reader_reads() {
    let run = WrittenRun::numbered(5, 10);
    let survey = Run::open(&run.path).unwrap().ranks[0].survey().unwrap();
    assert_eq!((survey.spans.rows, survey.spans.batches), (50, 5));
    assert_eq!(survey.spans.time, Some((Nanos(0), Nanos(49_000 + 500))));
    assert_eq!(survey.spans.bytes, fs::metadata(run.spans_file()).unwrap().len());
    assert_eq!((survey.memory.rows, survey.memory.time), (0, None));
    assert!(survey.loss.is_none());
}
