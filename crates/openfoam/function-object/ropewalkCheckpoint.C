#include "ropewalkCheckpoint.H"

#include "OSspecific.H"
#include "IOdictionary.H"
#include "Pstream.H"
#include "PstreamReduceOps.H"
#include "addToRunTimeSelectionTable.H"
#include "timeControlFunctionObject.H"

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

// Makes what Time keeps for derived classes accessible: pointers to its members.
struct TimeMembers
:
    public Time
{
    static scalar& startTime(Time& time)
    {
        return time.*(&TimeMembers::startTime_);
    }

    static label& writeTimeIndex(Time& time)
    {
        return time.*(&TimeMembers::writeTimeIndex_);
    }

    static FIFOStack<word>& previousWriteTimes(Time& time)
    {
        return time.*(&TimeMembers::previousWriteTimes_);
    }

    static scalar writeInterval(const Time& time)
    {
        return time.*(&TimeMembers::writeInterval_);
    }

    static bool countsRunTime(const Time& time)
    {
        const Time::writeControls control = time.*(&TimeMembers::writeControl_);
        return control == Time::wcRunTime || control == Time::wcAdjustableRunTime;
    }
};

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
    size_(0),
    isResumed_(dict.found("origin")),
    origin_(isResumed_ ? time.userTimeToTime(dict.get<scalar>("origin")) : time.startTime().value()),
    begin_(time.startTime().value()),
    index_(-1)
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
    if (isResumed_)
    {
        resume(dict);
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

// Goes on with the user's outputs as if the run had never been interrupted.
void ropewalkCheckpoint::resume(const dictionary& dict)
{
    Time& time = const_cast<Time&>(time_);
    const IOdictionary saved
    (
        IOobject("time", time.timeName(), "uniform", time, IOobject::READ_IF_PRESENT, IOobject::NO_WRITE, false)
    );
    // The name of the folder may have fewer digits.
    scalar value;
    if (saved.readIfPresent("value", value))
    {
        time.value() = time.userTimeToTime(value);
    }
    begin_ = time.value();
    TimeMembers::startTime(time) = begin_;
    if (TimeMembers::countsRunTime(time))
    {
        const scalar interval = TimeMembers::writeInterval(time);
        label& index = TimeMembers::writeTimeIndex(time);
        if (saved.getOrDefault<scalar>("ropewalkWriteInterval", 0) != interval)
        {
            // Another process counted otherwise. This is how Time does it.
            index = label(((time.value() - origin_) + 0.5*time.deltaTValue())/interval);
        }
        else
        {
            saved.readEntry("ropewalkWriteIndex", index);
        }
    }
    // OpenFOAM removes the older ones with each output to come, if there is a purgeWrite.
    FIFOStack<word>& outputs = TimeMembers::previousWriteTimes(time);
    outputs.clear();
    for (const string& output : dict.getOrDefault<List<string>>("outputs", List<string>()))
    {
        outputs.push(word(output));
    }
}

bool ropewalkCheckpoint::execute()
{
    TimeMembers::startTime(const_cast<Time&>(time_)) = begin_;
    return true;
}

bool ropewalkCheckpoint::filesModified() const
{
    // OpenFOAM asks for something else, at the moment that we need.
    const_cast<ropewalkCheckpoint&>(*this).stepEnd();
    return false;
}

void ropewalkCheckpoint::stepEnd()
{
    const bool isFirst = index_ < 0;
    const bool isNew = index_ != time_.timeIndex();
    index_ = time_.timeIndex();
    if (isFirst)
    {
        if (advisor_ && isResumed_)
        {
            rw_checkpoint_restored_end(advisor_);
        }
    }
    else if (isNew)
    {
        const bool isWritten = time_.writeTime();
        const bool isGood = isWritten && isSafeOutput();
        bool isWanted = decide();
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
    }
    TimeMembers::startTime(const_cast<Time&>(time_)) = origin_;
}

// Whether the user's own output can serve as a save: it has all digits and is not purged.
bool ropewalkCheckpoint::isSafeOutput() const
{
    return time_.writeFormat() == IOstream::BINARY
     && time_.controlDict().getOrDefault<label>("purgeWrite", 0) == 0;
}

bool ropewalkCheckpoint::write()
{
    return true;
}

bool ropewalkCheckpoint::end()
{
    if (time_.writeTime() && isSafeOutput())
    {
        save(true);
    }
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
    bool isOurs = false;
    if (!isWritten)
    {
        struct statvfs disk;
        if (isDir(own, false) || (!collated.empty() && isDir(collated, false)))
        {
            failure = "there is a folder of this name, which has too few digits to tell the two apart";
        }
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
            isOurs = true;
            if (!writeFields())
            {
                failure = "OpenFOAM could not write it";
            }
        }
    }
    else if (!writeState())
    {
        failure = "OpenFOAM could not write its state";
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
        if (isOurs)
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
            writeState()
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

// Writes what is no field, with all digits: where the run stands, and what function objects continue with.
bool ropewalkCheckpoint::writeState() const
{
    const unsigned digits = IOstream::defaultPrecision(17);
    bool isDone = writeTimeState();
    functionObjectList& objects = const_cast<functionObjectList&>(time_.functionObjects());
    for (label at = 0; at < objects.size(); ++at)
    {
        const functionObject* object = &objects[at];
        if (isA<functionObjects::timeControl>(*object))
        {
            object = &refCast<const functionObjects::timeControl>(*object).filter();
        }
        // It writes its means only with the user's outputs, but goes on with those of the save.
        if (object->type() == "fieldAverage")
        {
            const dictionary& entries = time_.controlDict().subDict("functions").subOrEmptyDict(object->name());
            if (!entries.getOrDefault<bool>("restartOnOutput", false))
            {
                isDone = const_cast<functionObject*>(object)->write() && isDone;
            }
        }
    }
    isDone =
        objects.stateDict().regIOobject::writeObject
        (
            IOstream::ASCII,
            IOstream::currentVersion,
            IOstream::UNCOMPRESSED,
            true
        )
     && isDone;
    IOstream::defaultPrecision(digits);
    return isDone;
}

// As Time::writeTimeDict does, and which of the user's outputs was the last.
bool ropewalkCheckpoint::writeTimeState() const
{
    IOdictionary state
    (
        IOobject("time", time_.timeName(), "uniform", time_, IOobject::NO_READ, IOobject::NO_WRITE, false)
    );
    state.add("value", Time::timeName(time_.timeToUserTime(time_.value()), 18));
    state.add("name", string(time_.timeName()));
    state.add("index", time_.timeIndex());
    state.add("deltaT", time_.timeToUserTime(time_.deltaTValue()));
    state.add("deltaT0", time_.timeToUserTime(time_.deltaT0Value()));
    if (TimeMembers::countsRunTime(time_))
    {
        state.add("ropewalkWriteIndex", TimeMembers::writeTimeIndex(const_cast<Time&>(time_)));
        state.add("ropewalkWriteInterval", TimeMembers::writeInterval(time_));
    }
    return state.regIOobject::writeObject
    (
        IOstream::ASCII,
        IOstream::currentVersion,
        IOstream::UNCOMPRESSED,
        true
    );
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
