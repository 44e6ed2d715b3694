use std::{collections::HashMap, sync::OnceLock};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use stepscope_traces::{
    Device, FIRST_NAME, NameId, Nanos, Rank, RankInfo, RankWriter, RunInfo, Span, SpanKind, Step, Stream,
};
use tempfile::TempDir;

use super::{
    cases::{Case, all, drawn, read},
    views::body,
};
use crate::{
    app::App,
    event::Event,
    theme::{Theme, ThemeName},
    view::View,
};

const PRODUCT: &str = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_TNT";
const SPLIT: &str = "cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(cublasSplitKParams<float>)";
const ADD: &str = "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>(int)";
const ADAM: &str = "at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)";

/// Kernels of a step: a name, who launched it, for how many microseconds, its FLOPs and bytes in millions.
const KERNELS: [(&str, &str, i64, u64, u64); 8] = [
    (PRODUCT, "aten::mm\tbf16[4096,1024] bf16[1024,4096]\tGPT_0/Block_0/Linear_0\tgpt.py:31 forward", 60, 34_360, 50),
    (ADD, "aten::add\tbf16[4096,1024] bf16[4096,1024]\tGPT_0/Block_0\tgpt.py:44 forward", 8, 0, 25),
    (PRODUCT, "aten::mm\tbf16[4096,1024] bf16[1024,4096]\tGPT_0/Block_1/Linear_1\tgpt.py:31 forward", 62, 34_360, 50),
    (ADD, "aten::add\tbf16[4096,1024] bf16[4096,1024]\tGPT_0/Block_1\tgpt.py:44 forward", 9, 0, 25),
    (PRODUCT, "aten::mm\tbf16[4096,1024] bf16[1024,64]\tGPT_0/Linear_2\tgpt.py:60 forward", 12, 537, 9),
    (SPLIT, "aten::mm\tbf16[4096,1024] bf16[1024,64]\tGPT_0/Linear_2\tgpt.py:60 forward", 4, 0, 0),
    (ADAM, "aten::_fused_adamw_\t\t\ttrain.py:12 step", 90, 0, 300),
    ("memset", "", 3, 0, 1),
];

/// A run in which it is known who launched kernels.
fn launched() -> &'static Case {
    static CASE: OnceLock<Case> = OnceLock::new();
    CASE.get_or_init(|| {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("gpt");
        let mut run = RunInfo::of_this_process("gpt");
        run.world_size = Some(1);
        run.create(&path).unwrap();
        let device = Device { name: "NVIDIA H200".into(), memory_bytes: None, peak_flops: Some(989.4e12) };
        let mut writer = RankWriter::create(&path, RankInfo::of_this_process(Rank(0))).unwrap();
        writer.set_device(device);
        let mut names: HashMap<&str, NameId> = HashMap::new();
        for text in KERNELS.iter().flat_map(|kernel| [kernel.0, kernel.1]) {
            let id = NameId(FIRST_NAME.0 + names.len() as u32);
            if *names.entry(text).or_insert(id) == id {
                writer.push_name(id, text).unwrap();
            }
        }
        for step in 0..3 {
            let begin = i64::from(step) * 400_000;
            let mut start = begin;
            for (name, origin, length, flops, bytes) in KERNELS {
                // The last one waits for the host.
                start += if name == "memset" { 50_000 } else { 1_000 };
                let kind = if name == "memset" { SpanKind::Set } else { SpanKind::Kernel };
                let some = |millions: u64| Some(millions * 1_000_000).filter(|amount| *amount > 0);
                let span = Span::new(kind, names[name], Nanos(start), Nanos(length * 1_000));
                let origin = Some(names[origin]).filter(|_| !origin.is_empty());
                let (step, stream) = (Some(Step(step)), Some(Stream(0)));
                let span = Span { step, stream, origin, flops: some(flops), bytes: some(bytes), ..span };
                writer.push_span(&span).unwrap();
                start += length * 1_000;
            }
            let whole = Span::new(SpanKind::Step, FIRST_NAME, Nanos(begin), Nanos(400_000));
            writer.push_span(&Span { step: Some(Step(step)), ..whole }).unwrap();
        }
        writer.finish().unwrap();
        Case::of("launched", read(&path))
    })
}

fn opened(case: &Case) -> App {
    let mut app = App::new(View::Kernels, Theme::new(ThemeName::Plain), false);
    app.handle(Event::Data(case.snapshot.clone()));
    drawn(&mut app, Nanos(0), 120, 40);
    app
}

fn press(app: &mut App, keys: &str) -> String {
    for key in keys.chars() {
        app.handle(Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
    }
    drawn(app, Nanos(0), 120, 40)
}

/// The lines of the table.
fn lines(frame: &str) -> Vec<&str> {
    let header = frame.lines().position(|line| line.contains("total") && line.contains("share")).unwrap();
    frame.lines().skip(header + 1).take_while(|line| !line.starts_with('─') && !line.is_empty()).collect()
}

#[test]
fn kernels_are_grouped_by_who_launched_them() {
    let mut app = opened(launched());
    for grouping in ["kernel", "operator", "shapes", "module", "line"] {
        insta::assert_snapshot!(grouping, body(launched(), &drawn(&mut app, Nanos(0), 120, 30)));
        press(&mut app, "b");
    }
    assert_eq!(drawn(&mut app, Nanos(0), 120, 30), drawn(&mut opened(launched()), Nanos(0), 120, 30));
}

#[test]
fn where_nobody_is_known_to_have_launched_kernels_there_is_one_grouping() {
    for case in all() {
        let before = drawn(&mut opened(case), Nanos(0), 120, 40);
        assert!(!before.contains("group by"), "{before}");
        assert_eq!(press(&mut opened(case), "b"), before, "{}", case.name);
    }
}

#[test]
fn groups_are_filtered_by_name() {
    let mut app = opened(launched());
    let operators = press(&mut app, "b/ADD");
    assert!(operators.contains("Kernels by operator  1 of 4"), "{operators}");
    assert!(lines(&operators)[0].contains("aten::add"), "{operators}");
    let mut app = opened(launched());
    let modules = press(&mut app, "bbb/block_1");
    assert!(modules.contains("Kernels by module  2 of 7"), "{modules}");
    assert!(lines(&modules)[1].contains("    Linear_1"), "what is in a module is found with it: {modules}");
}

#[test]
fn groups_are_sorted_and_modules_stay_a_tree() {
    let mut app = opened(launched());
    let by_mean = press(&mut app, "ss");
    assert!(by_mean.contains("▼mean"), "{by_mean}");
    let operators = press(&mut app, "b");
    assert!(operators.contains("▼total") && !operators.contains("mean"), "{operators}");
    assert!(press(&mut app, "s").contains("▼launches"));
    let modules = press(&mut app, "bb");
    assert!(!modules.contains('▼'), "{modules}");
    assert_eq!(lines(&press(&mut app, "s")), lines(&modules));
    assert!(press(&mut app, "b").contains("▼launches"), "the order is kept");
}

/// Whatever the size, groups are drawn and nothing beside them.
#[test]
fn groups_fit_everywhere() {
    let mut app = opened(launched());
    for key in "bjbjbjbjj".chars() {
        press(&mut app, &key.to_string());
        for (width, height) in [(1, 1), (2, 40), (200, 2), (10, 5), (39, 11), (40, 18), (400, 120)] {
            assert_eq!(drawn(&mut app, Nanos(0), width, height).lines().count(), usize::from(height));
        }
    }
}
