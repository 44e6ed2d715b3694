//! Rows of tables that belong together.

use polars::prelude::*;

use crate::error::AnalysisError;

/// The rows of a table that are alike in some columns.
pub(crate) fn row_groups<const N: usize>(table: &DataFrame, keys: [&str; N]) -> Result<Vec<Vec<u32>>, AnalysisError> {
    let grouped = table.group_by(keys)?;
    let rows = |group: GroupsIndicator<'_>| match group {
        GroupsIndicator::Idx((_, rows)) => rows.to_vec(),
        GroupsIndicator::Slice([first, count]) => (first..first + count).collect(),
    };
    Ok(grouped.get_groups().iter().map(rows).collect())
}
