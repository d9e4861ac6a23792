#include "storage/folder_sync.hpp"

#include "storage/file.hpp"

namespace penstock::storage {

std::string FolderSync::folder_path(unsigned folder) const {
  constexpr char digits[] = "0123456789abcdef";
  return root_ + '/' + digits[folder / 16] + digits[folder % 16];
}

void FolderSync::sync(const Folders& folders) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Round> round = next_;
  round->folders |= folders;
  changed_.wait(lock, [&] { return round->done || !syncing_; });
  if (!round->done) {  // this thread leads the round
    syncing_ = true;
    next_ = std::make_shared<Round>();
    lock.unlock();
    std::optional<Error> error;
    try {
      for (unsigned folder = 0; folder < folder_count; ++folder)
        if (round->folders[folder]) sync_folder(folder_path(folder));
    } catch (const Error& caught) {
      error = caught;
    }
    lock.lock();
    round->error = error;
    round->done = true;
    syncing_ = false;
    changed_.notify_all();
  }
  if (round->error) throw Error(*round->error);
}

}  // namespace penstock::storage
