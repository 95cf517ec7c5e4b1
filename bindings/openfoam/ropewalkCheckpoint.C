#include "ropewalkCheckpoint.H"

#include "OSspecific.H"
#include "Pstream.H"
#include "PstreamReduceOps.H"
#include "addToRunTimeSelectionTable.H"

#include <cstdlib>
#include <fstream>
#include <sys/statvfs.h>

namespace Foam
{
namespace functionObjects
{

defineTypeNameAndDebug(ropewalkCheckpoint, 0);
addToRunTimeSelectionTable(functionObject, ropewalkCheckpoint, dictionary);

// Stops the program. With other errors in its constructor OpenFOAM goes on without the function object.
static void stop(const string& why)
{
    FatalIOErrorInFunction(dictionary::null) << "ropewalk " << why.c_str() << exit(FatalIOError);
}

// Stops the program if a call fails on which all else depends.
static void need(int code, const char* what)
{
    if (code != RW_CHECKPOINT_OK)
    {
        stop(string("cannot ") + what + ": " + rw_checkpoint_error());
    }
}

// Whether all blocks of a file of several ranks are there, each of which says how long it is.
static bool hasBlocks(std::istream& stream)
{
    bool isFound = false;
    for (std::string line; std::getline(stream, line);)
    {
        std::streamoff length;
        if (line.compare(0, 12, "// Processor") != 0)
        {
            continue;
        }
        if (!(stream >> length) || stream.get() != '\n' || stream.get() != '(')
        {
            return false;
        }
        stream.seekg(length, std::ios::cur);
        if (stream.get() != ')')
        {
            return false;
        }
        isFound = true;
    }
    return isFound;
}

// OpenFOAM takes no notice of a disk that was full while it wrote a file, but every whole file ends with this line, or has
// blocks.
static bool isWhole(const fileName& file)
{
    static const std::string end("// ************************************************************************* //");
    std::ifstream stream(file, std::ios::binary | std::ios::ate);
    const std::streamoff size = stream.tellg();
    const std::streamoff length = min(size, std::streamoff(end.size() + 8));
    std::string tail(length > 0 ? length : 0, ' ');
    stream.seekg(-length, std::ios::end);
    if (!stream.read(&tail[0], tail.size()))
    {
        return false;
    }
    stream.seekg(0);
    return tail.find(end) != std::string::npos || hasBlocks(stream);
}

// How many bytes the files in a folder have; the first that is not whole is named.
static uint64_t measure(const fileName& folder, fileName& torn)
{
    uint64_t size = 0;
    for (const fileName& name : readDir(folder, fileName::FILE, false, false))
    {
        size += fileSize(folder/name);
        if (torn.empty() && !name.hasExt("gz") && !isWhole(folder/name))
        {
            torn = folder/name;
        }
    }
    for (const fileName& name : readDir(folder, fileName::DIRECTORY, false, false))
    {
        size += measure(folder/name, torn);
    }
    return size;
}

ropewalkCheckpoint::ropewalkCheckpoint(const word& name, const Time& time, const dictionary& dict)
:
    functionObject(name),
    time_(time),
    advisor_(nullptr),
    store_(nullptr),
    every_(dict.getOrDefault<label>("every", 0)),
    steps_(0),
    postponed_(0),
    size_(0)
{
    const fileName root(time.globalPath());
    fileName directory(dict.getOrDefault<fileName>("directory", getEnv("ROPEWALK_CHECKPOINT_DIR")));
    if (directory.empty())
    {
        directory = "checkpoints";
    }
    if (!directory.isAbsolute())
    {
        directory = root/directory;
    }

    rw_checkpoint_store_options where = RW_CHECKPOINT_STORE_OPTIONS;
    where.directory = directory.c_str();
    where.rank = Pstream::myProcNo();
    where.ranks = Pstream::nProcs();
    where.in_place = root.c_str();
    where.keep = dict.getOrDefault<label>("keep", 2);
    need(rw_checkpoint_store_open(&where, &store_), "open the checkpoints");

    if (Pstream::master())
    {
        // Who prepares the case says where it begins. Without that torn and newer saves may lie about.
        const word begin(time.timeName(time.startTime().value()));
        const string prepared(getEnv("ROPEWALK_OPENFOAM_START"));
        if (prepared.empty())
        {
            Info<< "ropewalk: the case was not prepared, so that this run may have begun with a torn save; start it by"
                << " 'ropewalk run --adapter openfoam'" << endl;
        }
        else if (prepared != begin)
        {
            stop("has prepared the case to begin at time " + prepared + " but it begins at " + begin);
        }

        rw_checkpoint_advisor_options costs = RW_CHECKPOINT_ADVISOR_OPTIONS;
        if (dict.found("mtbf") && dict.lookup("mtbf").first().isNumber())
        {
            costs.mtbf = dict.get<scalar>("mtbf");
            costs.mtbf_is_known = dict.getOrDefault<bool>("mtbfIsKnown", true);
        }
        costs.save = dict.getOrDefault<scalar>("saveTime", 0);
        costs.limit = dict.getOrDefault<scalar>("limit", 0);
        const fileName journal(directory/"journal");
        need(rw_checkpoint_advisor_open(&costs, journal.c_str(), &advisor_), "open its journal");
    }
    // Whoever has started the solver sees by this that the library was loaded.
    Info<< "ropewalk: saves to " << directory.c_str() << endl;
    // All have opened their stores before the first begins a save.
    returnReduce(true, andOp<bool>());
}

ropewalkCheckpoint::~ropewalkCheckpoint()
{
    if (advisor_)
    {
        rw_checkpoint_advisor_close(advisor_, 0);
    }
    if (store_)
    {
        rw_checkpoint_store_close(store_);
    }
}

bool ropewalkCheckpoint::execute()
{
    const bool isLast = time_.value() > time_.endTime().value() - 0.5*time_.deltaTValue();
    const bool isWritten = time_.writeTime();
    // The user's own output saves the time to write another, unless it will be purged or has not all digits.
    const bool isGood =
        isWritten
     && time_.writeFormat() == IOstream::BINARY
     && time_.controlDict().getOrDefault<label>("purgeWrite", 0) == 0;

    bool isWanted = isLast ? isGood : decide();
    if (isWanted && isWritten && !isGood && postponed_ == 0)
    {
        // Not to change the user's files, one step later; but not for ever if there is an output at every step.
        ++postponed_;
        isWanted = false;
    }
    Pstream::scatter(isWanted);
    if (isWanted)
    {
        save(isWritten);
        steps_ = 0;
        postponed_ = 0;
    }
    return true;
}

bool ropewalkCheckpoint::write()
{
    return true;
}

bool ropewalkCheckpoint::end()
{
    if (advisor_)
    {
        rw_checkpoint_advisor_close(advisor_, 1);
        advisor_ = nullptr;
    }
    return true;
}

// Whether to save now; what rank 0 says counts.
bool ropewalkCheckpoint::decide()
{
    ++steps_;
    if (!advisor_)
    {
        return false;
    }
    const scalar left = (time_.endTime().value() - time_.value())/max(time_.deltaTValue(), VSMALL);
    // The step that is over is still counted.
    rw_checkpoint_remaining_steps(advisor_, uint64_t(min(max(left, scalar(0)), scalar(1e15)) + 1.5));
    rw_checkpoint_decision decision;
    need(rw_checkpoint_step_end(advisor_, &decision), "decide");
    return every_ > 0 ? steps_ >= every_ : decision.save;
}

// Makes all ranks save this step, or none of them.
void ropewalkCheckpoint::save(const bool isWritten)
{
    if (advisor_)
    {
        rw_checkpoint_save_begin(advisor_, RW_CHECKPOINT_FULL);
    }
    rw_checkpoint_save* save = nullptr;
    string failure;
    if (rw_checkpoint_store_begin(store_, time_.timeIndex(), &save) != RW_CHECKPOINT_OK)
    {
        failure = rw_checkpoint_error();
    }
    const fileName own(time_.timePath());
    const fileName collated(collatedPath());
    if (!isWritten)
    {
        struct statvfs disk;
        if (failure.empty() && size_ > 0 && statvfs(time_.path().c_str(), &disk) == 0)
        {
            // OpenFOAM stops the run when it finds no room for some of its files, so we look before.
            if (uint64_t(disk.f_bavail)*disk.f_frsize < size_ + size_/4)
            {
                failure = "no room for another save of " + Foam::name(label(size_)) + " bytes";
            }
        }
        if (returnReduce(failure.empty(), andOp<bool>()))
        {
            const bool isDone = writeFields();
            if (!isDone)
            {
                failure = "OpenFOAM could not write it";
            }
        }
    }
    fileHandler().flush();
    // With some file handlers rank 0 writes the files of all.
    const bool isThere = returnReduce(failure.empty(), andOp<bool>());
    uint64_t size = 0;
    if (isThere)
    {
        fileName torn;
        for (const fileName& folder : {own, collated})
        {
            if (!folder.empty() && isDir(folder, false))
            {
                size += measure(folder, torn);
                rw_checkpoint_save_add(save, folder.c_str());
            }
        }
        if (!torn.empty())
        {
            failure = torn + " is not whole";
        }
    }
    bool isFine = isThere && returnReduce(failure.empty(), andOp<bool>());
    if (isFine)
    {
        if (isWritten)
        {
            rw_checkpoint_save_keep(save);
        }
        if (rw_checkpoint_store_commit(store_, save) != RW_CHECKPOINT_OK)
        {
            failure = rw_checkpoint_error();
        }
        isFine = returnReduce(failure.empty(), andOp<bool>());
    }
    else if (save)
    {
        rw_checkpoint_store_abandon(store_, save);
    }

    if (isFine)
    {
        size_ = size;
        if (rw_checkpoint_store_retire(store_) != RW_CHECKPOINT_OK)
        {
            Pout<< "ropewalk: old checkpoints stay: " << rw_checkpoint_error() << endl;
        }
    }
    else
    {
        if (!failure.empty())
        {
            Pout<< "ropewalk: time " << time_.timeName() << " is not saved: " << failure.c_str()
                << "; the run goes on, older checkpoints are intact" << endl;
        }
        if (!isWritten)
        {
            for (const fileName& folder : {own, collated})
            {
                if (!folder.empty() && isDir(folder, false))
                {
                    rmDir(folder, true);
                }
            }
        }
    }
    if (advisor_)
    {
        (isFine ? rw_checkpoint_save_end : rw_checkpoint_save_failed)(advisor_, RW_CHECKPOINT_FULL);
    }
}

// Writes this step, with all digits. Not by writeNow(): that would count as an output of the user's, and be purged with them.
bool ropewalkCheckpoint::writeFields() const
{
    // Where ranks write for each other, one that gave up would leave the others waiting for it.
    const bool isAlone = fileHandler().type() == "uncollated";
    const bool isThrowing = isAlone && FatalIOError.throwExceptions();
    const unsigned digits = IOstream::defaultPrecision(17);
    bool isDone = false;
    try
    {
        isDone =
            time_.writeTimeDict()
         && time_.objectRegistry::writeObject
            (
                IOstream::BINARY,
                IOstream::currentVersion,
                IOstream::UNCOMPRESSED,
                true
            );
    }
    catch (const Foam::IOerror&)
    {
        isDone = false;
    }
    IOstream::defaultPrecision(digits);
    if (isAlone && !isThrowing)
    {
        FatalIOError.dontThrowExceptions();
    }
    return isDone;
}

// Where this rank has written this step for a group of ranks together; empty if another did, or each for itself.
fileName ropewalkCheckpoint::collatedPath() const
{
    if (!Pstream::parRun())
    {
        return fileName();
    }
    const word folder(fileHandler().processorsDir(time_.caseName()));
    // The first of the group writes, "processors8_4-7" for example.
    const auto group = folder.rfind('_');
    const int first = group == std::string::npos ? 0 : std::atoi(folder.c_str() + group + 1);
    return Pstream::myProcNo() == first ? time_.globalPath()/folder/time_.timeName() : fileName();
}

}
}
