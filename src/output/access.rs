//! Who may read and write a file that takes the place of another one: whoever could before, and nobody else.
//!
//! The new file has the old one's permissions, access list, owner and group. Only root may give files away: for others
//! it is theirs, and where the group cannot be kept, it may do what everybody may. Other names of the old file (hard
//! links) keep the old contents.

use std::{
    fs::{File, Metadata, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
};

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

/// Under which name Linux keeps the access list of a file that has one.
const ACCESS_LIST: &str = "system.posix_acl_access";
/// No access list is longer: the system keeps no larger attributes.
const LONGEST: usize = 64 << 10;

/// Gives a new file the access that an old one has.
pub(super) fn keep(old: &File, new: &File) -> io::Result<()> {
    let there = old.metadata()?;
    let has_group = keep_owner(&there, new)?;
    let mode = there.permissions().mode() & 0o777;
    let everybody = mode & 0o007;
    new.set_permissions(Permissions::from_mode(if has_group { mode } else { mode & !0o070 | everybody << 3 }))?;
    let mut list = vec![0; LONGEST];
    if let Ok(length) = fgetxattr(old, ACCESS_LIST, list.as_mut_slice())
        && fsetxattr(new, ACCESS_LIST, &list[..length], XattrFlags::empty()).is_err()
    {
        // Beside a list, the permissions of the group are those of everybody whom it names.
        new.set_permissions(Permissions::from_mode(mode & !0o070))?;
    }
    Ok(())
}

/// Gives a file the owner and the group of another one, as far as that is allowed; says whether it has the group.
fn keep_owner(there: &Metadata, new: &File) -> io::Result<bool> {
    let (owner, group) = (there.uid(), there.gid());
    if fchown(new, Some(owner), Some(group)).is_err() {
        // One's own file may be of any group that one is in.
        drop(fchown(new, None, Some(group)));
    }
    Ok(new.metadata()?.gid() == group)
}
